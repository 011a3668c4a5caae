// The panes about a session: a search in their rows, filters, and changes, which are slash commands.
import { markText } from "./marks.js";

export class SettingsPanes {
  constructor(pane, send) {
    this.pane = pane;
    this.send = send;
    this.words = "";
    this.kind = "";
    pane.addEventListener("input", (event) => {
      if (!("search" in event.target.dataset)) return;
      this.words = event.target.value.trim();
      this.filter();
    });
    pane.addEventListener("change", (event) => this.change(event.target));
    pane.addEventListener("click", (event) => this.click(event.target.closest("button")));
    pane.addEventListener("submit", (event) => this.submit(event));
  }

  // After the server has drawn the pane.
  complete() {
    const field = this.pane.querySelector("[data-search]");
    if (field) field.value = this.words;
    if (!this.pane.querySelector("[data-rows]")) this.kind = "";
    this.filter();
  }

  filter() {
    let shown = 0;
    for (const row of this.pane.querySelectorAll("[data-row]")) {
      const fits = !this.kind || row.dataset.row === this.kind;
      const content = `${row.textContent} ${row.querySelector("input, select")?.value ?? ""}`;
      row.hidden = !(fits && content.toLowerCase().includes(this.words.toLowerCase()));
      shown += row.hidden ? 0 : 1;
    }
    for (const button of this.pane.querySelectorAll("[data-rows]")) {
      button.setAttribute("aria-pressed", String(button.dataset.rows === this.kind));
    }
    const empty = this.pane.querySelector("[data-no-row]");
    if (empty) empty.hidden = shown > 0 || !(this.words || this.kind);
    const [first] = markText(this.pane, this.words);
    first?.startContainer.parentElement.scrollIntoView({ block: "nearest" });
  }

  run(line) {
    this.send({ do: "pane_command", name: this.pane.dataset.pane, line });
  }

  change(field) {
    const name = field.dataset.setting;
    if (!name) return;
    const value = field.value.trim();
    this.run(`/config ${name} ${value || "--unset"}`);
  }

  click(button) {
    if (!button) return;
    const { rows, reset, revoke } = button.dataset;
    if (rows !== undefined) {
      this.kind = rows;
      this.filter();
    } else if (reset) this.run(`/config ${reset} --unset`);
    else if (revoke) this.run(`/permissions remove ${revoke}`);
  }

  submit(event) {
    event.preventDefault();
    const form = event.target;
    const { rule, list, scope, text } = form.elements;
    if ("addRule" in form.dataset && rule.value.trim()) {
      this.run(`/permissions add ${list.value} ${rule.value.trim()} --${scope.value}`);
    } else if ("remember" in form.dataset && text.value.trim()) {
      this.run(`/remember ${text.value.trim()}`);
    }
  }
}
