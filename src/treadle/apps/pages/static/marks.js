// Marks a text where it is shown, without a change of the page: with highlights of the browser, where
// it has them. Returns the places.
export function markText(root, text, name = "hit") {
  const ranges = text ? findRanges(root, text.toLowerCase()) : [];
  if ("highlights" in CSS) CSS.highlights.set(name, new Highlight(...ranges));
  return ranges;
}

function findRanges(root, text) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const ranges = [];
  while (walker.nextNode()) {
    const node = /** @type {Text} */ (walker.currentNode);
    const content = node.data.toLowerCase();
    for (let at = content.indexOf(text); at >= 0; at = content.indexOf(text, at + text.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, Math.min(node.data.length, at + text.length));
      ranges.push(range);
    }
  }
  return ranges;
}
