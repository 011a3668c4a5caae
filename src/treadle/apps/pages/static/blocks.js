// The blocks of the conversation in the page. The server sends their HTML, already escaped.
// What the user opened stays open; nothing opens or closes by itself.
import { morph } from "./regions.js";

export class Blocks {
  constructor(list) {
    this.list = list;
    this.byIndex = new Map();
    this.first = 0;
  }

  get count() {
    return this.byIndex.size;
  }

  apply(update) {
    if (update.is_reset) {
      this.list.replaceChildren();
      this.byIndex.clear();
      this.first = update.position[2];
    }
    for (const index of [...this.byIndex.keys()]) {
      if (index >= update.count) this.remove(index);
    }
    for (const [index, html] of update.blocks ?? []) this.set(index, html);
  }

  prepend(blocks) {
    if (!blocks.length) return;
    const elements = blocks.map(([index, html]) => this.make(index, html));
    this.list.prepend(...elements);
    this.first = blocks[0][0];
  }

  set(index, html) {
    const old = this.byIndex.get(index);
    const element = this.make(index, html);
    if (old) this.byIndex.set(index, morph(old, element));
    else this.list.append(element);
  }

  make(index, html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    const element = /** @type {Element} */ (template.content.firstElementChild);
    this.byIndex.set(index, element);
    return element;
  }

  remove(index) {
    this.byIndex.get(index)?.remove();
    this.byIndex.delete(index);
  }
}
