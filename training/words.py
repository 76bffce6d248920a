"""The word-level text tokenizer of the embedded model: it knows the words of the scenes, nothing else."""

import re

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from training import scenes


FUNCTION_WORDS = "a an the in on of at by with and to over under into near from some is it its this that my very"
SYNONYMS = {
    "dog": "doggy puppy dogs puppies", "cat": "kitten kitty cats kittens", "rabbit": "bunny hare rabbits bunnies",
    "fox": "foxes", "bear": "bears", "panda": "pandas", "koala": "koalas", "tiger": "tigers", "lion": "lions",
    "cow": "cows", "pig": "pigs piglet", "frog": "frogs toad", "monkey": "monkeys ape chimp",
    "chicken": "hen rooster chickens", "penguin": "penguins", "owl": "owls", "duck": "ducks",
    "unicorn": "unicorns", "elephant": "elephants", "turtle": "turtles tortoise", "octopus": "squid",
    "fish": "fishes", "whale": "whales", "crab": "crabs", "butterfly": "butterflies", "ladybug": "ladybird",
    "snail": "snails", "mouse": "mice rat", "apple": "apples", "pear": "pears", "orange": "oranges",
    "lemon": "lemons", "banana": "bananas", "grapes": "grape", "strawberry": "strawberries", "cherries": "cherry",
    "carrot": "carrots", "mushroom": "toadstool mushrooms", "hamburger": "burger", "doughnut": "donut doughnuts",
    "cookie": "biscuit cookies", "car": "cars automobile", "taxi": "cab", "rocket": "spaceship rockets",
    "airplane": "plane aeroplane jet", "balloon": "balloons", "house": "home hut", "gift": "present",
    "star": "stars", "robot": "robots", "ghost": "ghosts", "grass": "lawn meadow field",
    "sand": "beach desert sandy", "snow": "snowy", "water": "sea ocean lake river", "night": "space dark",
    "sunset": "sunrise dusk evening", "brick": "bricks", "wooden": "wood", "stones": "stone rocks rock cobbles",
    "forest": "woods jungle", "purple": "violet",
}  # fmt: skip


def normalize(text: str) -> str:
    """What the tokenizer makes of a prompt: lower case, synonyms replaced, function words and signs dropped."""
    return " ".join(NORMALIZER.normalize_str(text).split())


def normalizer() -> normalizers.Normalizer:
    def word(alternatives: str) -> Regex:
        return Regex(rf"\b({'|'.join(alternatives.split())})\b")

    steps = [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(r"['’]\w*|[^\w\s]+"), " ")]
    steps += [normalizers.Replace(word(others), name) for name, others in SYNONYMS.items()]
    return normalizers.Sequence([*steps, normalizers.Replace(word(FUNCTION_WORDS), " ")])


NORMALIZER = normalizer()


def vocabulary() -> list[str]:
    """Every word that captions use after normalizing, in a fixed order."""
    texts = [*scenes.OBJECT_NAMES, *scenes.PLACES.values()]
    return list(dict.fromkeys(re.findall(r"\w+", " ".join(normalize(t) for t in texts))))


def tokenizer(length: int) -> PreTrainedTokenizerFast:
    """A tokenizer that pads and cuts to `length` words."""
    words = {w: i for i, w in enumerate(["<pad>", "<unk>", *vocabulary()])}
    core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    core.normalizer = normalizer()
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", unk_token="<unk>", model_max_length=length, padding_side="right"
    )
