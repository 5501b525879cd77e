// Choosing a language: one sheet for both sides, searched by native, English and Chinese name or by tag.

const fold = (text) => text.normalize("NFKD").replace(/\p{Mn}/gu, "").toLowerCase();

export class Picker {
  #dialog = document.getElementById("picker");
  #search = document.getElementById("picker-search");
  #list = document.getElementById("picker-list");
  #choose = () => {};
  #rows = [];
  #current = 0;

  constructor() {
    this.#search.addEventListener("input", () => this.#show());
    this.#search.addEventListener("keydown", (event) => this.#onKey(event));
    this.#list.addEventListener("click", (event) => this.#take(event.target.closest("[role=option]")));
  }

  // `languages`: {tag, native, english, chinese}; `recent`: tags to show first; `chosen`: the tag to start at.
  open({ title, languages, recent, chosen, choose }) {
    this.languages = languages;
    this.recent = recent;
    this.chosen = chosen;
    this.#choose = choose;
    document.getElementById("picker-title").textContent = title;
    this.#search.value = "";
    this.#dialog.showModal();
    this.#show();
    this.#search.focus();
  }

  #show() {
    const wanted = fold(this.#search.value.trim());
    const found = this.languages.filter((each) => matches(each, wanted)).sort((a, b) => rank(a, wanted) - rank(b, wanted));
    const recent = wanted ? [] : this.languages.filter((each) => this.recent.includes(each.tag));
    const groups = recent.length ? [["Recent", recent], ["All", found.filter((each) => !recent.includes(each))]] : [["", found]];
    this.#rows = [];
    this.#list.replaceChildren(...groups.flatMap(([name, members]) => this.#group(name, members)));
    document.getElementById("picker-empty").hidden = found.length > 0;
    this.#mark(wanted ? 0 : Math.max(0, this.#rows.findIndex((row) => row.dataset.tag === this.chosen)));
  }

  #group(name, members) {
    const rows = members.map((each) => this.#row(each));
    if (!name) return rows;
    const heading = element("li", "group", name);
    heading.setAttribute("role", "presentation");
    return [heading, ...rows];
  }

  #row(language) {
    const row = element("li", "");
    row.id = `language-${this.#rows.length}`;
    row.dataset.tag = language.tag;
    row.setAttribute("role", "option");
    const native = element("span", "native", language.native);
    native.lang = language.tag;
    const names = [language.english, language.chinese].filter((name) => name && name !== language.native).join(" · ");
    row.append(native, element("span", "names", names), element("span", "tag", language.tag === "auto" ? "" : language.tag));
    this.#rows.push(row);
    return row;
  }

  #mark(index) {
    this.#rows[this.#current]?.setAttribute("aria-selected", "false");
    this.#current = Math.min(Math.max(index, 0), this.#rows.length - 1);
    const row = this.#rows[this.#current];
    row?.setAttribute("aria-selected", "true");
    row?.scrollIntoView({ block: "nearest" });
    this.#search.setAttribute("aria-activedescendant", row?.id ?? "");
  }

  #onKey(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
    if (event.key in steps) this.#mark(this.#current + steps[event.key]);
    else if (event.key === "Enter" && !event.isComposing) this.#take(this.#rows[this.#current]);
    else if (event.key === "Escape" && !event.isComposing) this.#dialog.close();  // browsers clear the field first
    else return;
    event.preventDefault();
  }

  #take(row) {
    if (!row) return;
    this.#dialog.close();
    this.#choose(row.dataset.tag);
  }
}

function matches(language, wanted) {
  return names(language).some((name) => fold(name).includes(wanted));
}

function rank(language, wanted) {
  if (!wanted || language.tag === wanted) return language.tag === wanted ? -1 : 0;
  return names(language).some((name) => fold(name).startsWith(wanted)) ? 0 : 1;
}

function names({ tag, native, english, chinese }) {
  return [tag, native, english, chinese];
}

export function element(kind, className, text = "") {
  const made = document.createElement(kind);
  made.className = className;
  made.textContent = text;
  return made;
}
