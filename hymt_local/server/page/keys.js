// Every action has a key; the list on the page is made from this table.

const IS_MAC = /Mac|iPhone|iPad/.test(navigator.platform);

export const KEYS = [
  { keys: ["Ctrl", "Enter"], action: "translate", does: "Translate now" },
  { keys: ["Esc"], action: "cancel", does: "Stop the translation" },
  { keys: ["Alt", "S"], action: "chooseSource", does: "Source language" },
  { keys: ["Alt", "T"], action: "chooseTarget", does: "Target language" },
  { keys: ["Alt", "X"], action: "swap", does: "Swap languages" },
  { keys: ["Alt", "C"], action: "copy", does: "Copy the translation" },
  { keys: ["Alt", "O"], action: "openFile", does: "Translate a document" },
  { keys: ["Alt", "H"], action: "openHistory", does: "History of this tab" },
  { keys: ["Alt", "1"], action: "focusSource", does: "Go to the text" },
  { keys: ["Alt", "2"], action: "focusTarget", does: "Go to the translation" },
  { keys: ["F1"], action: "openKeys", does: "This list" },
];

export function setUpKeys(actions) {
  document.getElementById("keys-list").replaceChildren(...KEYS.flatMap(entry));
  document.addEventListener("keydown", (event) => {
    const found = KEYS.find(({ keys }) => isPressed(keys, event));
    if (!found || event.isComposing) return;
    if (document.querySelector("dialog[open]")) return;  // a sheet has its own keys; Esc closes it
    if (actions[found.action]() !== false) event.preventDefault();
  });
}

function isPressed(keys, event) {
  const main = keys.at(-1);
  const hasCtrl = event.ctrlKey || event.metaKey;
  if (hasCtrl !== keys.includes("Ctrl") || event.altKey !== keys.includes("Alt")) return false;
  if (main === "Esc") return event.key === "Escape";
  // By place on the keyboard where Alt is held: on a Mac it changes the letter.
  return main.length === 1 ? event.code === `Key${main}` || event.code === `Digit${main}` : event.key === main;
}

function entry({ keys, does }) {
  const term = document.createElement("dt");
  const description = document.createElement("dd");
  for (const key of keys) {
    const shown = document.createElement("kbd");
    shown.textContent = IS_MAC ? { Ctrl: "⌘", Alt: "⌥" }[key] ?? key : key;
    term.append(...(term.childNodes.length ? [" ", shown] : [shown]));
  }
  description.textContent = does;
  return [term, description];
}
