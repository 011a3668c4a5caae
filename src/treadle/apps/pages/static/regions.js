// Changes elements into what the server sent, with as few changes as it needs (morphdom): what the
// user opened, marked or typed stays, and so does the focus.
import morphdom from "./vendor/morphdom.js";

/** @param {Element} element @param {string} html */
export function replaceContent(element, html) {
  const wanted = /** @type {Element} */ (element.cloneNode(false));
  wanted.innerHTML = html;
  morph(element, wanted, { childrenOnly: true });
}

/** @param {Element} element @param {Element} wanted @param {{ childrenOnly?: boolean }} options
 * @returns {Element} */
export function morph(element, wanted, options = {}) {
  return morphdom(element, wanted, { ...options, onBeforeElUpdated: keepState });
}

function keepState(from, to) {
  if (from instanceof HTMLDetailsElement) to.open = from.open;
  if (from === document.activeElement && "value" in from) to.value = from.value;
  return !from.isEqualNode(to);
}
