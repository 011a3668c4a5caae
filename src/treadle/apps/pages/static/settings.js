// The panes about a session: a search in their rows, filters, and changes, which are slash commands.
import { find, findAll, findAt, getTarget } from "./dom.js";
import { markText } from "./marks.js";

export class SettingsPanes {
  constructor(pane, send) {
    this.pane = pane;
    this.send = send;
    this.words = "";
    this.kind = "";
    pane.addEventListener("input", (event) => {
      if (!("search" in getTarget(event).dataset)) return;
      this.words = getTarget(event).value.trim();
      this.filter();
    });
    pane.addEventListener("change", (event) => this.change(getTarget(event)));
    pane.addEventListener("click", (event) => this.click(findAt(event, "button")));
    pane.addEventListener("submit", (event) => this.submit(event));
  }

  // After the server has drawn the pane.
  complete() {
    const field = find("[data-search]", this.pane);
    if (field) field.value = this.words;
    if (!find("[data-rows]", this.pane)) this.kind = "";
    this.filter();
  }

  filter() {
    let shown = 0;
    for (const row of findAll("[data-row]", this.pane)) {
      const fits = !this.kind || row.dataset.row === this.kind;
      const content = `${row.textContent} ${find("input, select", row)?.value ?? ""}`;
      row.hidden = !(fits && content.toLowerCase().includes(this.words.toLowerCase()));
      shown += row.hidden ? 0 : 1;
    }
    for (const button of findAll("[data-rows]", this.pane)) {
      button.setAttribute("aria-pressed", String(button.dataset.rows === this.kind));
    }
    const empty = find("[data-no-row]", this.pane);
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
    const form = /** @type {HTMLFormElement} */ (event.target);
    const given = new FormData(form);
    const read = (name) => String(given.get(name) ?? "").trim();
    if (read("rule")) this.run(`/permissions add ${read("list")} ${read("rule")} --${read("scope")}`);
    else if (read("text")) this.run(`/remember ${read("text")}`);
  }
}
