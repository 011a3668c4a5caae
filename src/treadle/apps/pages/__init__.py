"""What a browser is shown: values to HTML, and the files of `static`.

Used by the server (apps/web) and by the static copies that `treadle sessions export` and
`treadle cost --html` write. Text of a model, a tool or a file is escaped here and never becomes
HTML.
"""
