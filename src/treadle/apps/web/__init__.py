"""The page: sessions in a browser. Needs the extra `web`.

main.py starts the server, application.py has the routes, access.py decides who may use them.
hub.py holds the open sessions, feed.py sends their changes, actions.py does what a tab asks for.
render/ makes the HTML, static/ has the styles and scripts.
"""
