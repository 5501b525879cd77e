// What was translated in this tab: kept in sessionStorage, gone with the tab.

import { element } from "/page/languages.js";

const KEY = "hymt.history";
const MOST = 50;
const MOST_CHARACTERS = 500_000;

export class TabHistory {
  #dialog = document.getElementById("history");
  #entries = read();

  constructor({ restore, describe }) {
    this.describe = describe;
    this.restore = restore;
    document.getElementById("history-clear").addEventListener("click", () => {
      this.#entries = [];
      this.#save();
      this.#show();
    });
  }

  // A text that goes on where the last one stopped replaces it: typing leaves one entry, not one per pause.
  add(entry) {
    const [last] = this.#entries;
    const continues = last && last.targetLang === entry.targetLang && entry.source.startsWith(last.source);
    this.#entries = [entry, ...this.#entries.slice(continues ? 1 : 0)].slice(0, MOST);
    this.#save();
  }

  open() {
    this.#show();
    this.#dialog.showModal();
    this.#dialog.querySelector("li button, [data-close]").focus();  // not the button that clears
  }

  #show() {
    document.getElementById("history-list").replaceChildren(...this.#entries.map((entry) => this.#row(entry)));
    document.getElementById("history-empty").hidden = this.#entries.length > 0;
    document.getElementById("history-clear").hidden = this.#entries.length === 0;
  }

  #row(entry) {
    const button = element("button", "");
    button.type = "button";
    const from = element("span", "from", entry.source);
    const to = element("span", "", entry.target);
    from.dir = to.dir = "auto";
    button.append(element("span", "direction", this.describe(entry)), from, to);
    button.addEventListener("click", () => {
      this.#dialog.close();
      this.restore(entry);
    });
    const row = element("li", "");
    row.append(button);
    return row;
  }

  #save() {
    let n_characters = 0;
    this.#entries = this.#entries.filter((entry) => {
      n_characters += entry.source.length + entry.target.length;
      return n_characters <= MOST_CHARACTERS;
    });
    sessionStorage.setItem(KEY, JSON.stringify(this.#entries));
  }
}

function read() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY)) ?? [];
  } catch {
    return [];
  }
}
