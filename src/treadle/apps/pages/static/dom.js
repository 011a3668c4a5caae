// Elements of the page with the types that the checks of the scripts need.

/** An element of the page, with what fields, dialogs and links have beside.
 * @typedef {HTMLElement & HTMLInputElement & HTMLTextAreaElement & HTMLDialogElement & HTMLAnchorElement} PageElement */

/** @param {string} id @returns {PageElement} */
export function $(id) {
  return /** @type {PageElement} */ (document.getElementById(id));
}

/** @param {string} selector @param {ParentNode} root @returns {PageElement | null} */
export function find(selector, root = document) {
  return root.querySelector(selector);
}

/** The same of one that is always there. @param {string} selector @param {ParentNode} root
 * @returns {PageElement} */
export function get(selector, root = document) {
  return /** @type {PageElement} */ (root.querySelector(selector));
}

/** What has the focus. @returns {PageElement} */
export function getFocused() {
  return /** @type {PageElement} */ (document.activeElement ?? document.body);
}

/** @param {string} selector @param {ParentNode} root @returns {PageElement[]} */
export function findAll(selector, root = document) {
  return [...root.querySelectorAll(selector)].map((found) => /** @type {PageElement} */ (found));
}

/** Where an event happened. @param {Event} event @returns {PageElement} */
export function getTarget(event) {
  return /** @type {PageElement} */ (event.target);
}

/** The innermost element around that place which fits. @param {Event} event @param {string} selector
 * @returns {PageElement | null} */
export function findAt(event, selector) {
  return getTarget(event).closest(selector);
}
