// A search for an option (`--until`, `-p`) searches for the words of its name: to the search, a `-`
// before a word is an operator, and `--` an error. Loaded by every page; see `polyfills` in mkdocs.yml.
{
  const QUERY = 2 // the type of the message, as the theme numbers them
  const send = Worker.prototype.postMessage
  const requireAll = name => name.replace(/[\w.]+/g, "+$&*").replaceAll("-", " ")
  Worker.prototype.postMessage = function (message, ...rest) {
    if (message?.type === QUERY && typeof message.data === "string") {
      const data = message.data.replace(/(^|\s)-+(\w\S*)/g, (_, before, name) => before + requireAll(name))
      message = { ...message, data }
    }
    return send.call(this, message, ...rest)
  }
}
