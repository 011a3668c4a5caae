// Replaces the content of an element. What the user opened or closed stays so, and what has the
// focus keeps it.
import { findAll } from "./dom.js";

export function replaceContent(element, html) {
  const states = new Map(
    findAll("details[data-panel]", element).map((one) => [one.dataset.panel, one.open]),
  );
  const focused = findFocus(element);
  element.innerHTML = html;
  for (const one of findAll("details[data-panel]", element)) {
    one.open = states.get(one.dataset.panel) ?? one.open;
  }
  if (focused) findAll(focused.selector, element)[focused.at]?.focus({ preventScroll: true });
}

function findFocus(element) {
  const active = /** @type {import("./dom.js").PageElement} */ (document.activeElement);
  if (!element.contains(active) || active === element) return null;
  const selector = active.tagName.toLowerCase();
  return { selector, at: findAll(selector, element).indexOf(active) };
}
