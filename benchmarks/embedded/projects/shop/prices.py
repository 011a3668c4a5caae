PRICES = {"apple": 3, "pear": 4, "plum": 1}


def price_of(name):
    return PRICES[name.lower()]


def discount(amount, percent):
    """The amount after taking percent off."""
    return amount - amount * percent / 10
