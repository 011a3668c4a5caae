class Inventory:
    def __init__(self):
        self.stock = {}

    def add(self, name, count):
        self.stock[name] += count

    def count(self, name):
        return self.stock.get(name, 0)
