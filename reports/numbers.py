"""Numbers as people read them: significant digits, errors with their means, p-values."""

from __future__ import annotations

import math


def number(value: float, digits: int = 4) -> str:
    """A score for people: significant digits, a true minus sign, scientific form only far from one."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size and not 1e-3 <= size < 1e6:
        digits_text, _, power = f"{value:.{max(digits - 1, 0)}e}".partition("e")
        text = f"{digits_text}e{int(power)}"
    else:
        decimals = max(digits - 1 - (math.floor(math.log10(size)) if size else 0), 0)
        text = f"{value:.{min(decimals, digits)}f}"
    return text.replace("-", "−")


# A standard error from n splits is itself uncertain by 1/√(2(n − 1)): from here on its second digit means something.
SPLITS_FOR_TWO_DIGITS = 12


def error_digits(count: float) -> int:
    """Significant digits of a standard error that comes from so many splits."""
    return 2 if count >= SPLITS_FOR_TWO_DIGITS else 1


def with_error(mean: float, error: float, count: float = math.inf) -> tuple[str, str]:
    """Mean and standard error with the same decimals: as many as the error from `count` splits deserves."""
    if math.isnan(error) or error == 0 or math.isinf(mean) or math.isinf(error):
        return number(mean), number(error, 2)
    digits = error_digits(count)
    exponent = math.floor(math.log10(error))
    scale = max(abs(mean), error)
    if not 1e-3 <= scale < 1e6:
        power = math.floor(math.log10(scale))
        decimals = min(max(power - exponent + digits - 1, 1), 5)
        pair = (f"{mean / 10.0**power:.{decimals}f}e{power}", f"{error / 10.0**power:.{decimals}f}e{power}")
    else:
        decimals = min(max(digits - 1 - exponent, 0), 6)
        pair = (f"{mean:.{decimals}f}", f"{error:.{decimals}f}")
    return pair[0].replace("-", "−"), pair[1].replace("-", "−")


def signed(value: float, decimals: int) -> str:
    """With its sign, a true minus, and no −0.0."""
    text = f"{value:+.{decimals}f}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")


def p_text(p_value: float) -> str:
    return "–" if math.isnan(p_value) else "< 0.0001" if p_value < 1e-4 else f"{p_value:.4f}"
