// A page that needs no script of its own: there is no connection to show.
import { $ } from "./dom.js";

$("live").hidden = true;
