// Comments on lines of the review. They are kept with the draft, and become part of the next message.
import { findAt } from "./dom.js";

export class Comments {
  constructor(session, bar) {
    this.key = `comments-${session}`;
    this.bar = bar;
    this.all = JSON.parse(sessionStorage.getItem(this.key) ?? "[]");
    this.onChange = () => {};
    bar.addEventListener("click", (event) => {
      if (findAt(event, "[data-clear]")) this.replace([]);
    });
    this.draw();
  }

  find(path, line) {
    return this.all.find((one) => one.path === path && one.line === line)?.text ?? "";
  }

  set(path, line, text) {
    const others = this.all.filter((one) => one.path !== path || one.line !== line);
    this.replace(text ? [...others, { path, line, text }] : others);
  }

  // What the message says, with the comments; they are not kept any longer.
  addTo(text) {
    if (!this.all.length) return text;
    const lines = this.all.map(({ path, line, text: said }) => {
      const [side, number] = line.split("-");
      const place = `${side === "old" ? "removed line" : "line"} ${number}`;
      return `- ${path}, ${place}: ${said.replaceAll("\n", "\n  ")}`;
    });
    this.replace([]);
    return [text, `Comments on changed lines:\n${lines.join("\n")}`].filter(Boolean).join("\n\n");
  }

  replace(all) {
    this.all = all;
    sessionStorage.setItem(this.key, JSON.stringify(all));
    this.draw();
    this.onChange();
  }

  draw() {
    const count = this.all.length;
    this.bar.hidden = !count;
    if (!count) return;
    const text = document.createElement("span");
    text.textContent = `${count === 1 ? "1 comment goes" : `${count} comments go`} with your next message`;
    const clear = document.createElement("button");
    clear.type = "button";
    clear.className = "btn bare";
    clear.dataset.clear = "";
    clear.textContent = "Remove";
    clear.setAttribute("aria-label", "Remove the comments");
    this.bar.replaceChildren(text, clear);
  }
}
