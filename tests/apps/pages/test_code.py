"""Code and diffs as HTML."""

from treadle.apps.pages.code import render_diff

DIFF = """\
--- a/x.py
+++ b/x.py
@@ -1,3 +1,3 @@
 def f():
-    return "a"
+    return 3  # <b>
@@ -9,1 +9,1 @@ class A
-x = 1
+x = 'text'
"""


def test_the_code_in_a_diff_has_colours():
    html = render_diff(DIFF, "Change")
    assert '<span class="k">def</span> <span class="f">f</span>():' in html
    assert '<span class="k">return</span> <span class="nb">3</span>' in html
    assert '<span class="cm"># &lt;b&gt;</span>' in html
    assert html.count('<tr class="add">') == html.count('<tr class="del">') == 2


def test_a_line_that_a_lexer_would_split_stays_one_line_without_colours():
    html = render_diff(DIFF.replace("return 3", "return 3\r4"), "Change")
    assert html.count('<tr class="add">') == 2
    assert '<span class="k">def</span>' not in html.partition("class A")[0]


def test_a_file_of_an_unknown_kind_is_shown_without_colours():
    assert "<span" not in render_diff(DIFF.replace("x.py", "x.unknown"), "Change")
