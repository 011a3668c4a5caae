"""Tools whose call is a child: an agent that the model or the program gives work, or code."""
