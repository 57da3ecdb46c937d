"""A customer service session: orders, products and flights looked up as JSON, and changed after a yes."""

import json
import random
from typing import Any

from benchmarks.sessions.banks import NOUNS, POLICY, words
from benchmarks.sessions.transcript import Chat, Transcript

WARES = words(
    "lamp kettle backpack jacket speaker tent bicycle puzzle blender boots watch keyboard desk bottle camera"
)
TRAITS = {
    "colour": words("black white red teal amber"),
    "size": words("S M L XL"),
    "material": words("steel oak wool"),
}
AIRPORTS = words("BER LIS OSL PRG VIE DUB MAD HEL ZRH GVA")


class Desk:
    """A customer service agent with one customer, whose orders and journeys it looks up and changes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.out = Transcript(self.rng)
        number = self.digits(5)
        self.customer: dict[str, Any] = {
            "customer_id": f"C-{number}",
            "email": f"customer.{number}@example.com",
            "address": {
                "street": f"{self.digits(3)} {self.rng.choice(NOUNS)} lane",
                "postcode": self.digits(5),
            },
            "payment_methods": [{"id": f"card_{self.digits(7)}", "last_four": self.digits(4)}],
            "gift_card": {"id": f"gift_{self.digits(7)}", "balance": self.rng.randint(5, 300)},
            "orders": [f"#W{self.digits(7)}" for _ in range(4)],
        }
        self.orders: dict[str, dict[str, Any]] = {}

    def digits(self, count: int) -> str:
        return str(self.rng.randrange(10 ** (count - 1), 10**count))

    def ware(self, product: str) -> dict[str, Any]:
        traits = {trait: self.rng.choice(choices) for trait, choices in TRAITS.items()}
        price = round(self.rng.uniform(9, 400), 2)
        return {
            "item_id": self.digits(10),
            "product": product,
            "options": traits,
            "price": price,
            "available": True,
        }

    def order(self, order_id: str) -> dict[str, Any]:
        if order_id not in self.orders:
            items = [self.ware(self.rng.choice(WARES)) for _ in range(self.rng.randint(1, 5))]
            method = self.customer["payment_methods"][0]["id"]
            paid = {"amount": round(sum(item["price"] for item in items), 2), "method": method}
            state = self.rng.choice(("pending", "delivered"))
            parcel = {"carrier": "Northway", "tracking": f"NW{self.digits(10)}", "status": state}
            products = {item["product"]: self.digits(9) for item in items}
            self.orders[order_id] = {"order_id": order_id, "status": state, "items": items, "payment": paid}
            self.orders[order_id] |= {"product_ids": products, "parcel": parcel}
        return self.orders[order_id]

    def tool(self, name: str, result: Any, **arguments: Any) -> None:
        self.out.call(None, [(name, arguments, json.dumps(result))])

    def exchange(self, order_id: str) -> None:
        """Look an order up, offer another item of the same product, and change it after a yes."""
        self.out.say("user", f"Hello, it is about order {order_id}. I would like something in it exchanged.")
        order = self.order(order_id)
        self.tool("get_order", order, order_id=order_id)
        described = ", ".join(f"a {item['product']} at ${item['price']}" for item in order["items"])
        self.out.say(
            "assistant", f"Order {order_id} is {order['status']} and holds {described}. What shall change?"
        )
        old = self.rng.choice(order["items"])
        colour = self.rng.choice(TRAITS["colour"])
        self.out.say(
            "user", f"The {old['product']}: do you have it in {colour}? Any size, but it must be in stock."
        )
        product = order["product_ids"][old["product"]]
        variants = [self.ware(old["product"]) for _ in range(self.rng.randint(3, 8))]
        self.tool("get_product", {"product_id": product, "variants": variants}, product_id=product)
        fitting = [variant for variant in variants if variant["options"]["colour"] == colour]
        new = (fitting or variants)[0]
        change = round(new["price"] - old["price"], 2)
        stock = (
            f"{len(fitting)} of them are in {colour}"
            if fitting
            else f"none is in {colour}, the nearest is this one"
        )
        self.out.say(
            "assistant",
            f"We have {len(variants)} kinds of {old['product']} in stock, {stock}:\n\n- item {new['item_id']}, "
            f"{new['options']['colour']}, size {new['options']['size']}, {new['options']['material']}\n- price "
            f"${new['price']}, a difference of ${change} to what you paid for item {old['item_id']}\n\nThe difference would "
            "be settled with the card that the order was paid with. An exchange can be made only once for an order. "
            "Shall I go ahead?",
        )
        self.out.say(
            "user", self.rng.choice(("Yes, please.", "Yes, go ahead.", "Yes. And nothing else in the order."))
        )
        order["items"] = [new if item is old else item for item in order["items"]]
        done = {"order_id": order_id, "status": "exchange requested", "difference": change}
        pair = {"item_id": old["item_id"], "new_item_id": new["item_id"]}
        self.tool("exchange_item", done, order_id=order_id, **pair, payment_method=order["payment"]["method"])
        self.out.say(
            "assistant",
            f"Done: order {order_id} now has item {new['item_id']}. ${change} is settled by card.",
        )

    def refund(self, order_id: str) -> None:
        """Send back something that was looked up long before, without a second look."""
        item, gift = self.rng.choice(self.orders[order_id]["items"]), self.customer["gift_card"]["id"]
        self.out.say(
            "user",
            f"One more: the {item['product']} of that earlier order can go back, to my gift card please.",
        )
        done = {
            "order_id": order_id,
            "status": "return requested",
            "item_id": item["item_id"],
            "label": self.digits(9),
        }
        self.tool("return_item", done, order_id=order_id, item_id=item["item_id"], refund_to=gift)
        said = f"I asked for the return of item {item['item_id']} of order {order_id}; ${item['price']} will go to {gift}."
        self.out.say(
            "assistant", f"{said} Please use label {done['label']} and send the parcel within 14 days."
        )

    def journey(self) -> None:
        """Search flights, and book the one the customer names by its hour."""
        origin, destination = self.rng.sample(AIRPORTS, 2)
        day = f"2025-{self.rng.randint(1, 12):02d}-{self.rng.randint(1, 28):02d}"
        self.out.say(
            "user", f"I also need a flight from {origin} to {destination} on {day}, economy, the cheapest."
        )
        flights: list[dict[str, Any]] = [
            {
                "flight": f"HL{self.digits(3)}",
                "departs": f"{self.rng.randint(5, 22):02d}:{self.rng.randint(0, 59):02d}",
                "prices": {"basic": self.rng.randint(40, 90), "economy": self.rng.randint(91, 300)},
                "seats": {"basic": self.rng.randint(0, 20), "economy": self.rng.randint(1, 20)},
            }
            for _ in range(self.rng.randint(3, 9))
        ]
        self.tool("search_flights", flights, origin=origin, destination=destination, date=day)
        best = min(flights, key=lambda flight: flight["prices"]["economy"])
        offer = f"{best['flight']} at {best['departs']} for ${best['prices']['economy']} is the cheapest in economy."
        self.out.say("assistant", f"{offer} Shall I book it?")
        self.out.say("user", "Yes, from my gift card if the balance allows it, otherwise by card.")
        price, gift = best["prices"]["economy"], self.customer["gift_card"]
        method = gift["id"] if gift["balance"] >= price else self.customer["payment_methods"][0]["id"]
        booked = {"reservation": f"R{self.digits(6)}", "flight": best["flight"], "date": day, "paid": price}
        self.tool(
            "book_flight", booked, flight=best["flight"], date=day, cabin="economy", payment_method=method
        )
        self.out.say(
            "assistant", f"Booked: reservation {booked['reservation']}, {best['flight']} on {day}, ${price}."
        )


def service_session(target_tokens: int, seed: int = 1) -> Chat:
    """A customer service session of at least that many tokens; it ends with the case during which they are reached."""
    desk = Desk(seed)
    desk.out.say("system", POLICY)
    desk.out.say("user", f"Hi, I need help with some orders. My address is {desk.customer['email']}.")
    desk.tool("find_customer", desk.customer, email=desk.customer["email"])
    desk.out.say(
        "assistant", f"Thank you, I found your account {desk.customer['customer_id']}. What can I do?"
    )
    while desk.out.tokens() < target_tokens:
        kind, unseen = (
            desk.rng.random(),
            [number for number in desk.customer["orders"] if number not in desk.orders],
        )
        if kind < 0.3:
            desk.journey()
        elif kind < 0.55 and desk.orders:
            desk.refund(desk.rng.choice(list(desk.orders)))
        else:
            desk.exchange(unseen[0] if unseen else f"#W{desk.digits(7)}")
    return desk.out.messages
