// One translation at a time: its stream, and the pane that shows it.

import { stream } from "/page/api.js";
import { element } from "/page/languages.js";

export class Translation {
  #pane = document.getElementById("target");
  #running = null;
  text = "";

  // `on`: {started, loading, progress, finished, failed, cancelled}; each is told once or more, never after a new run.
  constructor(on) {
    this.on = on;
  }

  get isRunning() {
    return this.#running !== null;
  }

  clear() {
    this.cancel();
    this.text = "";
    this.#pane.replaceChildren();
    this.#pane.classList.remove("old");
  }

  // Closing the connection is what cancels on the server.
  cancel() {
    if (!this.#running) return;
    this.#running.abort();
    this.#running = null;
    this.#settle();
    this.on.cancelled();
  }

  async run(request) {
    this.#running?.abort();
    const mine = (this.#running = new AbortController());
    this.text = "";
    this.#pane.classList.add("running", "old");
    try {
      await this.#follow(request, mine);
    } catch (error) {
      if (mine === this.#running && error.name !== "AbortError") this.#end(() => this.on.failed(error));
    }
  }

  async #follow(request, mine) {
    const lines = new Lines(this.#pane);
    for await (const { event, data } of stream("/v1/translate", request, mine.signal)) {
      if (mine !== this.#running) return;
      this.#take(event, data, lines);
    }
    if (mine === this.#running) throw Object.assign(new Error("The answer ended too early."), { hint: "Try again." });
  }

  #take(event, data, lines) {
    switch (event) {
      case "loading":
        return this.on.loading(data);
      case "started":
        lines.lay(data.segments);
        return this.on.started(data);
      case "token":
        return lines.append(data.segment, data.text);
      case "segment":
        lines.settle(data);
        return this.on.progress(lines.n_settled, lines.n_segments);
      case "done":
        this.text = data.text;
        lines.show();
        return this.#end(() => this.on.finished(data));
      case "error":
        return this.#end(() => this.on.failed(Object.assign(new Error(data.error.message), data.error)));
      case "cancelled":
        return this.#end(() => this.on.cancelled());
    }
  }

  #end(tell) {
    this.#running = null;
    this.#settle();
    tell();
  }

  #settle() {
    this.#pane.classList.remove("running", "old");
  }
}

// The segments of one text as paragraphs that each find their own direction; shown when the first word is there.
class Lines {
  #spans = [];
  #laid = document.createDocumentFragment();
  #isShown = false;
  n_settled = 0;

  constructor(pane) {
    this.pane = pane;
  }

  get n_segments() {
    return this.#spans.length;
  }

  lay(segments) {
    this.#newLine();
    for (const { lead, trail } of segments) {
      this.#write(lead);
      const span = element("span", "");
      this.#laid.lastChild.append(span);
      this.#spans.push(span);
      this.#write(trail);
    }
  }

  append(segment, text) {
    this.show();
    const span = this.#spans[segment];
    span.classList.add("open");
    span.append(text);
    this.#follow(span);
  }

  settle({ segment, target, error }) {
    this.show();
    this.n_settled += 1;
    const span = this.#spans[segment];
    span.textContent = target;
    span.classList.remove("open");
    if (error) {
      span.classList.add("failed");
      span.title = `Not translated: ${error.message}`;
    }
  }

  show() {
    if (this.#isShown) return;
    this.#isShown = true;
    this.pane.classList.remove("old");
    this.pane.replaceChildren(this.#laid);
  }

  #newLine() {
    const line = element("p", "");
    line.dir = "auto";
    this.#laid.append(line);
  }

  #write(blank) {
    const [first, ...others] = blank.split("\n");
    this.#laid.lastChild.append(first);
    for (const other of others) {
      this.#newLine();
      this.#laid.lastChild.append(other);
    }
  }

  // Keep the newest word in sight, unless the reader has scrolled away.
  #follow(span) {
    const { scrollTop, scrollHeight, clientHeight } = this.pane;
    if (scrollHeight - scrollTop - clientHeight < 48) span.scrollIntoView({ block: "nearest" });
  }
}
