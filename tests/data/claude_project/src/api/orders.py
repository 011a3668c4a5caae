ORDERS: list[int] = []
