"""A shop as a plain class with tools: what an environment of one's own looks like. It imports nothing.

The customer wants a number of things, and has to pay for what is in the basket. The shortest plan is one purchase and
one payment.
"""

from random import Random


class Shop:
    """A shop whose prices and wishes are drawn by the seed."""

    def reset(self, seed: int, wish: str = "") -> str:
        """Start: what is wanted, and the prices."""
        draw = Random(seed)
        self.prices = {item: draw.randint(1, 9) for item in ("apple", "bread", "milk")}
        self.wish = wish if wish in self.prices else draw.choice(sorted(self.prices))
        self.wanted, self.basket, self.settled = draw.randint(1, 3), dict.fromkeys(self.prices, 0), False
        prices = ", ".join(f"{item} {price}" for item, price in self.prices.items())
        return f"Wanted: {self.wanted} {self.wish}. Prices: {prices}."

    def buy(self, item: str, n: int = 1) -> str:
        """Put n of an item into the basket."""
        if item not in self.prices or not 1 <= n <= 9:
            raise ValueError(f"there is no {n} {item}")
        self.basket[item] += n
        return f"basket: {self._total()}"

    def pay(self, amount: int) -> str:
        """Pay exactly the price of the basket, which ends the visit."""
        self.settled = amount == self._total() > 0
        return "thank you" if self.settled else f"the price is {self._total()}"

    def _total(self) -> int:
        """The price of the basket."""
        return sum(self.prices[item] * n for item, n in self.basket.items())

    @property
    def done(self) -> bool:
        """Whether the basket is settled."""
        return self.settled

    def reward(self) -> float:
        """1 for what is wanted and settled, 1/2 for the basket alone."""
        right = self.basket == {**dict.fromkeys(self.prices, 0), self.wish: self.wanted}
        return 0.5 * right + 0.5 * (right and self.settled)

    def solver(self) -> str:
        """The next call of the shortest plan."""
        name, arguments = ("pay", f'"amount": {self._total()}')
        if not self._total():
            name, arguments = ("buy", f'"item": "{self.wish}", "n": {self.wanted}')
        return f'<tool_call>{{"name": "{name}", "arguments": {{{arguments}}}}}</tool_call>'
