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


def test_the_words_that_have_changed_are_marked_in_both_lines():
    diff = (
        "@@ -1,2 +1,2 @@\n-def area(width, <b>):\n-    one\n+def area(size, <b>):\n+    a b c d e f"
    )
    html = render_diff(diff, "Change")
    assert "def area(<del>width</del>, &lt;b&gt;):" in html
    assert "def area(<ins>size</ins>, &lt;b&gt;):" in html
    assert "<td>    a b c d e f</td>" in html, "a line with nothing in common is not marked"
    coloured = render_diff(f"--- a/x.py\n+++ b/x.py\n{diff}", "Change")
    assert "<del>width</del>" in coloured
    assert '<span class="k">def</span>' in coloured


def test_a_change_that_begins_inside_a_coloured_word_keeps_its_colours():
    html = render_diff(
        '--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-x = "one two"\n+x = "one 2"', "Change"
    )
    assert '<span class="s">one </span><ins><span class="s">2</span></ins>' in html


def test_lines_that_replace_another_number_of_lines_are_not_marked():
    assert "<ins>" not in render_diff("@@ -1 +1,2 @@\n-one two three\n+one two 3\n+four", "Change")
