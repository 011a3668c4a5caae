import { makeId } from "./connection.js";
import { findAt } from "./dom.js";
import { morph } from "./regions.js";

// Messages that the server has not confirmed. They are shown, also after a reload; those that wait
// can be taken back. One that was sent is sent again under its id, which the server counts once.
// One that was written without a connection is sent when it is back, unless the session has moved
// on from what the user had read: then the user decides.
export class Outbox {
  constructor(session, { list, send, describeEnd, isBusy, giveBack }) {
    this.list = list;
    this.send = send;
    this.describeEnd = describeEnd;
    this.isBusy = isBusy;
    this.giveBack = giveBack;
    this.key = `outbox-${session}`;
    this.feed = ""; // what the tab is connected to; "" without a connection
    this.waiting = JSON.parse(sessionStorage.getItem(this.key) ?? "[]");
    this.list.addEventListener("click", (event) => this.click(event));
    this.draw();
  }

  add(text, attachments) {
    const id = makeId();
    const message = { do: "send", id, text, attachments };
    const one = { message, feed: "", end: this.describeEnd(), whyHeld: "" };
    this.waiting.push(one);
    if (this.feed) this.deliver(one);
    this.changed();
  }

  // The tab shows the newest state of the session.
  connect(feed) {
    if (this.feed) return;
    this.feed = feed;
    const isSame = (one) => one.end === this.describeEnd() && !this.isBusy();
    for (const one of this.waiting) {
      const hadReadNothing = one.end === null && !one.feed;
      if (one.feed === feed || hadReadNothing || isSame(one)) this.deliver(one);
      else one.whyHeld = `${one.feed ? "Perhaps sent" : "Not sent"}: the session has moved on`;
    }
    this.changed();
  }

  disconnect() {
    this.feed = "";
    this.draw();
  }

  deliver(one) {
    one.whyHeld = "";
    if (this.send(one.message)) one.feed = this.feed;
  }

  confirm(id) {
    this.waiting = this.waiting.filter((one) => one.message.id !== id);
    this.changed();
  }

  // The server refused what was sent.
  hold(id) {
    for (const one of this.waiting) if (one.message.id === id) one.whyHeld = "Not sent";
    this.changed();
  }

  click(event) {
    const button = findAt(event, "button");
    const one = this.waiting.find(({ message }) => message.id === button?.dataset.message);
    if (!button || !one) return;
    if (button.dataset.outbox === "send") {
      if (this.feed) this.deliver(one);
    } else {
      this.waiting = this.waiting.filter((other) => other !== one);
      this.giveBack(one.message.text);
    }
    this.changed();
  }

  changed() {
    sessionStorage.setItem(this.key, JSON.stringify(this.waiting));
    this.draw();
  }

  // A row that stays the same stays in place: it may be under a click.
  draw() {
    const wanted = this.list.cloneNode(false);
    wanted.append(...this.waiting.map((one) => this.makeRow(one)));
    morph(this.list, wanted, { childrenOnly: true });
  }

  makeRow(one) {
    const row = document.createElement("li");
    const text = document.createElement("span");
    text.className = "t";
    text.textContent = one.message.text;
    const end = document.createElement("span");
    end.className = "end";
    const why = document.createElement("span");
    const isSending = Boolean(this.feed) && !one.whyHeld;
    why.textContent = one.whyHeld || (isSending ? "Sending" : "Waits for the connection");
    end.append(why);
    if (one.whyHeld && this.feed) end.append(this.makeButton(one, "send", "Send"));
    if (!isSending) end.append(this.makeButton(one, "back", "Take back"));
    row.append(text, end);
    return row;
  }

  makeButton(one, action, label) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "btn bare";
    button.dataset.outbox = action;
    button.dataset.message = one.message.id;
    button.textContent = label;
    return button;
  }
}
