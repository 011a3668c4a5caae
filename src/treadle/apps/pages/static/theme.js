// Light, dark, or as the system: kept in this browser.
const THEMES = ["", "light", "dark"];
const LABELS = { "": "as the system", light: "light", dark: "dark" };
const root = document.documentElement;

function show(theme) {
  if (theme) root.dataset.theme = theme;
  else delete root.dataset.theme;
  const button = document.getElementById("theme-button");
  if (button) button.setAttribute("aria-label", `Theme: ${LABELS[theme]}`);
}

let theme = localStorage.getItem("theme") ?? "";
show(theme);
document.getElementById("theme-button")?.addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  localStorage.setItem("theme", theme);
  show(theme);
});
