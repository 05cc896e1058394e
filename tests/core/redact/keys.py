"""Keys for the tests, drawn from a seed when a test runs: no file holds a secret-looking literal."""

from __future__ import annotations

import base64
import json
import random
import string

ALNUM = string.ascii_letters + string.digits
URLSAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"
HEX = "0123456789abcdef"
BASE32 = string.ascii_uppercase + "234567"


def draw(rng: random.Random, alphabet: str, count: int) -> str:
    """`count` random characters; both ends are letters or digits, as they are in nearly all keys."""
    inner = [rng.choice(alphabet) for _ in range(count)]
    ends = [c for c in alphabet if c.isalnum()]
    inner[0], inner[-1] = rng.choice(ends), rng.choice(ends)
    return "".join(inner)


def pem(rng: random.Random, name: str, *, line_end: str = "\n") -> str:
    body = [draw(rng, BASE64, 64) for _ in range(rng.randint(2, 12))]
    return line_end.join([f"-----BEGIN {name}-----", *body, f"-----END {name}-----"])


def jwt(rng: random.Random) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part({'sub': draw(rng, HEX, 12)})}.{draw(rng, URLSAFE, 43)}"


def keys(seed: int) -> dict[str, tuple[str, str]]:
    """One key of each form: its name here -> (the kind it is counted as, the key)."""
    rng = random.Random(seed)
    found = {
        f"{c}": ("github_token", f"gh{c[-1]}_" + draw(rng, ALNUM, 36)) for c in ("ghp", "gho", "ghu", "ghs", "ghr")
    }
    pem_names = ("RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED ", "DSA ")
    found |= {f"{name}PEM": ("private_key", pem(rng, f"{name}PRIVATE KEY")) for name in pem_names}
    found |= {
        "PGP": ("private_key", pem(rng, "PGP PRIVATE KEY BLOCK")),
        "github_pat": ("github_token", "github" + "_pat_" + draw(rng, ALNUM, 22) + "_" + draw(rng, ALNUM, 59)),
        "aws id": ("aws_key", "AK" + "IA" + draw(rng, BASE32, 16)),
        "aws temporary id": ("aws_key", "AS" + "IA" + draw(rng, BASE32, 16)),
        "gitlab": ("gitlab_token", "gl" + "pat-" + draw(rng, URLSAFE, 20)),
        "gitlab routable": ("gitlab_token", "gl" + f"pat-{draw(rng, URLSAFE, 27)}.01.{draw(rng, HEX, 9)}"),
        "slack bot": (
            "slack_token",
            "xo" + f"xb-{draw(rng, '123456789', 12)}-{draw(rng, '123456789', 12)}-{draw(rng, ALNUM, 24)}",
        ),
        "slack app": (
            "slack_token",
            "xa" + f"pp-1-A0{draw(rng, BASE32, 9)}-{draw(rng, '123456789', 13)}-{draw(rng, HEX, 64)}",
        ),
        "slack webhook": ("slack_webhook", f"T0{draw(rng, BASE32, 8)}/B0{draw(rng, BASE32, 8)}/{draw(rng, ALNUM, 24)}"),
        "stripe": ("stripe_key", "sk_" + "live_" + draw(rng, ALNUM, 24)),
        "stripe restricted": ("stripe_key", "rk_" + "live_" + draw(rng, ALNUM, 99)),
        "google": ("google_key", "AI" + "za" + draw(rng, URLSAFE, 35)),
        "google oauth": ("google_oauth", "GOC" + "SPX-" + draw(rng, URLSAFE, 28)),
        "jwt": ("jwt", jwt(rng)),
        "npm": ("npm_token", "np" + "m_" + draw(rng, ALNUM, 36)),
        "pypi": ("pypi_token", "py" + "pi-AgEIcHlwaS5vcmc" + draw(rng, URLSAFE, 150)),
        "twilio": ("twilio_key", "S" + "K" + draw(rng, HEX, 32)),
        "sendgrid": ("sendgrid_key", "S" + f"G.{draw(rng, URLSAFE, 22)}.{draw(rng, URLSAFE, 43)}"),
        "openai": ("openai_key", "s" + "k-proj-" + draw(rng, URLSAFE, 74) + "T3Blbk" + "FJ" + draw(rng, URLSAFE, 74)),
        "openai old": ("openai_key", "s" + "k-" + draw(rng, ALNUM, 48)),
        "anthropic": ("anthropic_key", "s" + "k-ant-api03-" + draw(rng, URLSAFE, 93) + "AA"),
        "hugging face": ("huggingface_token", "h" + "f_" + draw(rng, ALNUM, 34)),
        "azure": ("azure_key", draw(rng, BASE64, 86) + "=="),
        "url": ("url_password", draw(rng, ALNUM, 14)),
    }
    return found


def line_with(name: str, key: str) -> str:
    """A line of a program in which such a key is found in the wild."""
    frames = {
        "azure": 'CONNECTION = "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey={};EndpointSuffix=core.windows.net"',
        "slack webhook": 'requests.post("https://hooks.slack.com/services/{}", json=body)',
        "url": 'engine = create_engine("postgresql://shop:{}@db.shop-internal.net:5432/orders")',
    }
    if "BEGIN" in key:
        return f'KEY = """{key}\n"""'
    return frames.get(name, 'client = Client(region="eu", key="{}")  # set by deploy').format(key)
