"""The Textual widgets: transcript, prompt, choices, text entry, dialogs."""
