// The list of sessions: filters by state and words, search in the text of all sessions.
import { $, find, findAll, get } from "./dom.js";
import { replaceContent } from "./regions.js";

export class SessionList {
  constructor(search) {
    this.filter = "";
    $("search").addEventListener("input", () => {
      $("found").replaceChildren();
      this.apply();
    });
    const searchText = () => {
      const text = $("search").value.trim();
      if (text) search(text);
    };
    $("search").addEventListener("keydown", (event) => {
      if (event.key === "Enter") searchText();
    });
    $("search-button").addEventListener("click", searchText);
  }

  show(message) {
    replaceContent($("list"), message.html);
    $("waiting").className = message.waiting ? "count" : "";
    $("waiting").textContent = message.waiting || "";
    const title = document.title.replace(/^\(\d+\) /, "");
    document.title = message.waiting ? `(${message.waiting}) ${title}` : title;
    const rows = findAll("li[data-state]", $("list"));
    for (const button of findAll("[data-filter]")) {
      const state = button.dataset.filter;
      const count = rows.filter((row) => !state || row.dataset.state === state).length;
      get("span", button).textContent = String(count || "");
    }
    this.apply();
  }

  showFound(message) {
    if (message.text !== $("search").value.trim()) return;
    $("found").innerHTML = message.html;
    this.apply();
  }

  choose(filter) {
    this.filter = filter;
    for (const button of findAll("[data-filter]")) {
      button.setAttribute("aria-pressed", String(button.dataset.filter === filter));
    }
    this.apply();
  }

  apply() {
    const words = $("search").value.toLowerCase();
    let shown = 0;
    for (const row of findAll("li[data-state]", $("list"))) {
      const fits = !this.filter || row.dataset.state === this.filter;
      row.hidden = !(fits && row.textContent.toLowerCase().includes(words));
      shown += row.hidden ? 0 : 1;
    }
    const isNarrowed = words || this.filter;
    for (const rest of findAll(".rest", $("list"))) if (isNarrowed) rest.open = true;
    for (const folder of findAll(".folder", $("list"))) {
      folder.hidden = !find("li[data-state]:not([hidden])", folder);
    }
    $("search-button").hidden = !words || Boolean($("found").textContent);
    $("no-match").hidden = shown > 0 || !isNarrowed;
    $("no-match").textContent = words ? `No title has “${words}”.` : "No session is in this state.";
  }
}
