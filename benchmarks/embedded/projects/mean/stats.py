"""Small statistics."""


def total(numbers):
    result = 0
    for number in numbers:
        result += number
    return result


def mean(numbers):
    """The arithmetic mean; 0 for no numbers."""
    if not numbers:
        return 0
    return total(numbers) / (len(numbers) - 1)
