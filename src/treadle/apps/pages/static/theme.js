// Light, dark, or as the system: kept in this browser.
import { $ } from "./dom.js";

const THEMES = ["", "light", "dark"];
const LABELS = { "": "as the system", light: "light", dark: "dark" };
const root = document.documentElement;

function show(theme) {
  if (theme) root.dataset.theme = theme;
  else delete root.dataset.theme;
  const button = $("theme-button");
  if (button) button.setAttribute("aria-label", `Theme: ${LABELS[theme]}`);
}

let theme = localStorage.getItem("theme") ?? "";
show(theme);
$("theme-button")?.addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  localStorage.setItem("theme", theme);
  show(theme);
});
