// Replaces the content of an element. What the user opened or closed stays so, and what has the
// focus keeps it.
export function replaceContent(element, html) {
  const states = new Map(
    [...element.querySelectorAll("details[data-panel]")].map((one) => [one.dataset.panel, one.open]),
  );
  const focused = findFocus(element);
  element.innerHTML = html;
  for (const one of element.querySelectorAll("details[data-panel]")) {
    one.open = states.get(one.dataset.panel) ?? one.open;
  }
  if (focused) element.querySelectorAll(focused.selector)[focused.at]?.focus({ preventScroll: true });
}

function findFocus(element) {
  const active = document.activeElement;
  if (!element.contains(active) || active === element) return null;
  const selector = active.tagName.toLowerCase();
  return { selector, at: [...element.querySelectorAll(selector)].indexOf(active) };
}
