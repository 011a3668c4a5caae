"""The aids for a small model: what the engine decides for it, so that it is right more often.

A model of some hundred million parameters writes a line well, and chooses badly: it calls a tool at
random, invents arguments, ignores the result in front of it, and makes the same call again. So an
`Embedded` (../model.py) decides nothing, and only writes what a grammar allows. This layer decides
for it, and marks what it chose or wrote: `by` of such a text or call is "engine".

    assist            Assisted, the layer itself: a Model around the model
    tool_choice       which tools may come next: similar worked examples vote for the call
      change_request    whether files have to change, which ones, and the tests of the folder
      argument_values   its arguments are chosen from the words of the request, not written
    answer_template   the answer: the results of the turn, as fixed sentences
    repair            a failing program is repaired line by line, with a check after each try
      line_edits        the questions about one wrong line, and the change that an answer means
      check_output      which lines and files of a failing check matter

A call that was just made is not made again. Nothing is kept between requests: every aid reads the
transcript, so a session continues after a crash. The setting `assist` turns the layer off;
benchmarks/embedded compares both.
"""
