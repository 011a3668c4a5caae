// Jumps to a text of the conversation that the address names (?find=), and marks it. Earlier parts are
// loaded until it is there.
import { markText } from "./marks.js";

export class TextFinder {
  constructor(root, loadEarlier, showProblem) {
    this.root = root;
    this.loadEarlier = loadEarlier;
    this.showProblem = showProblem;
    this.text = new URLSearchParams(location.search).get("find") ?? "";
    this.isDone = !this.text;
  }

  // After blocks have come. `first` is the number of the first one.
  look(first) {
    if (this.isDone) return;
    const place = markText(this.root, this.text).pop();
    if (!place && first > 0) return this.loadEarlier(first);
    this.isDone = true;
    if (!place) return this.showProblem("The text is not in what is shown here.");
    const element = place.startContainer.parentElement;
    for (let one = element.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
    element.scrollIntoView({ block: "center" });
  }
}
