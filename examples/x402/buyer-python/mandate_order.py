"""How an x402 offer reads as an order: buyer and seller must agree to the character."""

import json
import re
from decimal import Decimal

MOST_DECIMALS = 8  # the most fractional digits of an amount


def order_of(offer, assets):
    """The order of an offer. `assets` is {"eip155:8453/0x8335…": ("USDC", 6)}, in lower case."""
    if offer.scheme != "exact":  # others sign more than the offer names, such as the deposit of a channel
        raise ValueError(f"scheme {offer.scheme} is refused: only exact signs the amount of the offer")
    network, asset, pay_to = offer.network.lower(), offer.asset.lower(), offer.pay_to.lower()
    if not re.fullmatch(r"eip155:\d+", network):
        raise ValueError(f"network {network} is refused: only eip155 networks are known here")
    if f"{network}/{asset}" not in assets:
        raise ValueError(f"asset {asset} on {network} is refused: it is not listed")
    currency, decimals = assets[f"{network}/{asset}"]
    if decimals > MOST_DECIMALS:
        raise ValueError(f"{currency} is refused: it has {decimals} decimals, and an amount has at most {MOST_DECIMALS}")
    place = network.replace(":", "-")
    order = {"currency": currency, "recipient": f"vendor:{place}.{pay_to}", "category": f"{place}.{asset}"}
    amount = format(Decimal(f"{int(offer.amount)}E-{decimals}"), "f")  # exact: no float
    return '{"amount":' + amount + "," + json.dumps(order)[1:]
