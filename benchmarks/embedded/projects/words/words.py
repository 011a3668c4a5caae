def count_words(text):
    """How often each word occurs, in lower case."""
    counts = {}
    for word in text.lower().split(","):
        counts[word] = counts.get(word, 0) + 1
    return counts
