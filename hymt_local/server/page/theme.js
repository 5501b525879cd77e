// Light, dark, or what the system says. The choice is the only thing besides languages that outlives the tab.

const KEY = "hymt.theme";
const NAMES = { auto: "Theme: like the system", light: "Theme: light", dark: "Theme: dark" };
const ORDER = Object.keys(NAMES);

export function setUpTheme() {
  const button = document.getElementById("theme");
  show(localStorage.getItem(KEY) ?? "auto", button);
  button.addEventListener("click", () => {
    const before = document.documentElement.dataset.theme ?? "auto";
    const next = ORDER[(ORDER.indexOf(before) + 1) % ORDER.length];
    localStorage.setItem(KEY, next);
    show(next, button);
  });
}

function show(theme, button) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  button.title = NAMES[theme] ?? NAMES.auto;
  document.getElementById("theme-name").textContent = button.title;
}
