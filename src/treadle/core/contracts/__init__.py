"""The ten contracts. This folder is the manual: everything enters the engine through one of these.

model      who thinks                 source     where tools come from
tool       one thing that it can do   policy     what it may do
hook       who may object or add      mutator    who may rewrite the view
gate       who may stop the spending  store      what is kept
observer   who is told                workspace  where it works
"""
