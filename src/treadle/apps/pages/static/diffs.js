// A unified diff side by side: removed lines at the left, added ones at the right.
export function showDiff(table, isSplit) {
  table.classList.toggle("split", isSplit);
  if (!isSplit) {
    if (table.unified) table.tBodies[0].replaceWith(table.unified);
    return;
  }
  table.unified = table.tBodies[0];
  const body = document.createElement("tbody");
  let removed = [];
  let added = [];
  const flush = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at += 1) {
      body.append(makeRow(removed[at], added[at]));
    }
    removed = [];
    added = [];
  };
  for (const row of table.unified.rows) {
    if (row.classList.contains("del")) removed.push(row);
    else if (row.classList.contains("add")) added.push(row);
    else {
      flush();
      body.append(row.classList.contains("hunk") ? row.cloneNode(true) : makeRow(row, row));
    }
  }
  flush();
  table.unified.replaceWith(body);
}

function makeRow(left, right) {
  const row = document.createElement("tr");
  for (const [source, number] of [[left, 0], [right, 1]]) {
    const line = document.createElement("td");
    line.className = "l";
    if (source) line.append(...source.cells[number].cloneNode(true).childNodes);
    const text = document.createElement("td");
    text.className = source?.className ?? "";
    if (source) text.append(...source.cells[3].cloneNode(true).childNodes);
    row.append(line, text);
  }
  return row;
}
