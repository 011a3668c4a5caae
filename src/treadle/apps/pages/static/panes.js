// The panes that take the place of the conversation. The address names the open one (#review-git), so
// that a link opens it and "back" closes it. The server draws it.
import { $, findAll } from "./dom.js";

const PANES = ["review", "settings", "permissions", "context", "servers", "memory"];

export class Panes {
  // `shown` completes what the server drew of a pane.
  constructor({ send, shown, onClose }) {
    this.send = send;
    this.shown = shown;
    this.onClose = onClose;
    this.pane = $("pane");
    window.addEventListener("hashchange", () => this.load());
  }

  get isOpen() {
    return !this.pane.hidden;
  }

  readAddress() {
    const [name, ...part] = decodeURIComponent(location.hash.slice(1)).split("-");
    return PANES.includes(name) ? { name, part: part.join("-") } : null;
  }

  // Shows what the address names.
  load() {
    const wanted = this.readAddress();
    if (wanted) this.send({ do: "pane", ...wanted });
    else if (this.isOpen) this.hide();
  }

  // Asks again for the open pane, unless the user is writing in it.
  refresh() {
    const isInField = this.pane.contains(document.activeElement?.closest("textarea, input") ?? null);
    const isWriting = isInField || this.pane.querySelector("textarea") !== null;
    if (this.isOpen && !isWriting) this.load();
  }

  show(message) {
    const address = `#${message.name}${message.part ? `-${message.part}` : ""}`;
    const isNew = !this.isOpen || this.pane.dataset.pane !== message.name;
    if (location.hash !== address) {
      const change = this.readAddress() ? "replaceState" : "pushState";
      history[change](null, "", address);
    }
    const places = isNew ? [] : findAll("[data-scrolls]", this.pane).map((one) => one.scrollTop);
    this.pane.dataset.pane = message.name;
    this.pane.innerHTML = message.html;
    this.pane.hidden = false;
    document.body.classList.add("has-pane");
    document.body.classList.remove("is-new");
    this.shown(message.name);
    findAll("[data-scrolls]", this.pane).forEach((one, at) => {
      one.scrollTop = places[at] ?? 0;
    });
    if (isNew) this.pane.focus({ preventScroll: true });
  }

  close() {
    if (!this.isOpen) return;
    if (this.readAddress()) history.pushState(null, "", location.pathname);
    this.hide();
  }

  hide() {
    this.pane.hidden = true;
    this.pane.replaceChildren();
    document.body.classList.remove("has-pane");
    this.onClose();
  }
}
