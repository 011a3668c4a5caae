import unittest

from account import Account


class Test(unittest.TestCase):
    def test_deposit(self):
        account = Account(5)
        account.deposit(10)
        self.assertEqual(account.balance, 15)

    def test_withdraw(self):
        account = Account(20)
        account.withdraw(5)
        self.assertEqual(account.balance, 15)


if __name__ == "__main__":
    unittest.main()
