import unittest

from inventory import Inventory


class Test(unittest.TestCase):
    def test_add(self):
        inventory = Inventory()
        inventory.add("bolt", 5)
        inventory.add("bolt", 2)
        self.assertEqual(inventory.count("bolt"), 7)
        self.assertEqual(inventory.count("nut"), 0)


if __name__ == "__main__":
    unittest.main()
