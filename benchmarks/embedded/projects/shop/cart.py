from prices import discount, price_of


class Cart:
    def __init__(self):
        self.items = []

    def add(self, name, count=1):
        self.items.append((name, count))

    def total(self, percent=0):
        amount = sum(price_of(name) * count for name, count in self.items)
        return discount(amount, percent)
