import unittest

from cart import Cart


class Test(unittest.TestCase):
    def test_total(self):
        cart = Cart()
        cart.add("Apple", 2)
        cart.add("pear")
        self.assertEqual(cart.total(), 10)

    def test_discount(self):
        cart = Cart()
        cart.add("apple", 10)
        self.assertEqual(cart.total(percent=50), 15)


if __name__ == "__main__":
    unittest.main()
