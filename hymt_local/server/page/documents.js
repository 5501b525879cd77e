// Documents: sent to the server, followed, and fetched back. Nothing is written on its disk by name.

import { ask, send } from "/page/api.js";
import { element } from "/page/languages.js";

const POLL_MS = 700;

export class Documents {
  #list = document.getElementById("documents");

  // `languages` returns {sourceLang, targetLang}; `fail` shows what went wrong before there is a row for it.
  constructor({ languages, fail }) {
    this.languages = languages;
    this.fail = fail;
  }

  // The file chooser offers what the server can read; anything else may still be dropped, and is then refused.
  async offerFormats(input) {
    const { formats } = await ask("/v1/documents");
    input.accept = formats.flatMap(({ extensions }) => extensions).join(",");
  }

  listen(input, pane) {
    input.addEventListener("change", () => {
      for (const file of input.files) this.#translate(file);
      input.value = "";
    });
    pane.addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      pane.classList.add("over");
    });
    pane.addEventListener("dragleave", () => pane.classList.remove("over"));
    pane.addEventListener("drop", (event) => {
      pane.classList.remove("over");
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      for (const file of event.dataTransfer.files) this.#translate(file);
    });
  }

  async #translate(file) {
    const row = new Row(file.name);
    this.#list.hidden = false;
    this.#list.prepend(row.element);
    const stop = new AbortController();
    row.onRemove = () => {
      stop.abort();
      row.element.remove();
      this.#list.hidden = this.#list.children.length === 0;
    };
    try {
      await this.#follow(file, row, stop.signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      row.fail(error);
      if (error.status === 401) this.fail(error);
    }
  }

  async #follow(file, row, signal) {
    const { sourceLang, targetLang } = this.languages();
    const body = new FormData();
    body.append("target_lang", targetLang);
    if (sourceLang !== "auto") body.append("source_lang", sourceLang);
    body.append("file", file);
    const { id } = await ask("/v1/documents", { method: "POST", body, signal });
    signal.addEventListener("abort", () => send(`/v1/documents/${id}`, { method: "DELETE" }).catch(() => {}));
    for (;;) {
      const status = await ask(`/v1/documents/${id}`, { signal });
      if (status.state === "failed") throw Object.assign(new Error(status.error.message), status.error);
      if (status.state === "done") return row.finish(status, await this.#fetch(id, signal), targetLang);
      row.progress(status);
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      signal.throwIfAborted();
    }
  }

  async #fetch(id, signal) {
    const response = await send(`/v1/documents/${id}/result`, { signal });
    return URL.createObjectURL(await response.blob());
  }
}

class Row {
  #state = element("span", "state", "Sending…");
  #bar = document.createElement("progress");
  #remove;

  constructor(name) {
    this.name = name;
    this.element = element("div", "document");
    this.#bar.setAttribute("aria-label", `Progress of ${name}`);
    const remove = element("button", "icon");
    remove.type = "button";
    remove.append(document.querySelector("#clear svg").cloneNode(true), element("span", "sr", `Remove ${name}`));
    remove.addEventListener("click", () => this.onRemove());
    const title = element("span", "name", name);
    title.dir = "auto";
    this.#state.setAttribute("role", "status");
    const middle = element("div", "");
    middle.append(title, this.#bar, this.#state);
    this.#remove = remove;
    this.element.append(middle, remove);
  }

  progress({ n_done, n_units }) {
    if (n_units) Object.assign(this.#bar, { max: n_units, value: n_done });
    this.#state.textContent = n_units ? `${n_done} of ${n_units}` : "Reading…";
  }

  finish({ n_failed = 0 }, url, targetLang) {
    this.#bar.remove();
    this.#state.textContent = n_failed ? `Done; ${n_failed} parts could not be translated` : "Done";
    const link = element("a", "main", "Save");
    link.href = url;
    link.download = this.name.replace(/(\.[^.]+)?$/, `.${targetLang}$1`);
    this.#remove.before(link);
  }

  fail({ message, hint = "" }) {
    this.#bar.remove();
    this.element.classList.add("failed");
    this.#state.textContent = hint ? `${message} (${hint})` : message;
  }
}
