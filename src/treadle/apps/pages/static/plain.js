// A page that needs no script of its own: there is no connection to show.
document.getElementById("live").hidden = true;
