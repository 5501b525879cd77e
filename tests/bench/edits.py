"""Paragraphs of some sixty words, edited as people edit them, with the translations before and after.

The translations were written by hand, word order and agreement included: what an edit really changes in a translation
is neither nothing nor only one word. Ids are made of them as a byte-pair vocabulary would cut them, some 1.4 pieces a
word, so that a model of any geometry can be measured with them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Literal

PIECE_CHARACTERS = 6
"""Longest piece of a word of letters; a Chinese piece has two."""
FIRST_ID = 300
N_IDS = 29_000

Kind = Literal["appended", "changed"]


@dataclass(frozen=True, slots=True)
class Edit:
    """One paragraph before and after, with its translations."""

    kind: Kind
    language: str
    source: tuple[str, str]
    target: tuple[str, str]


def pieces(text: str) -> list[str]:
    """Cut a text as a vocabulary might: a space belongs to the word after it, long words are several pieces."""
    found: list[str] = []
    for word in re.findall(r"[一-鿿]+| ?[^\W一-鿿]+|\s?[^\w\s]|\s", text):
        size = 2 if "一" <= word[-1] <= "鿿" else PIECE_CHARACTERS
        found += [word[start : start + size] for start in range(0, len(word), size)]
    return found


def ids(text: str) -> tuple[int, ...]:
    """Return an id for each piece, the same for the same piece."""
    return tuple(
        FIRST_ID + int.from_bytes(hashlib.blake2b(piece.encode(), digest_size=6).digest()) % N_IDS
        for piece in pieces(text)
    )


_GARDEN = (
    "Last spring my neighbour decided to turn the small yard behind her house into a garden. She worked there "
    "every evening after dinner, digging up old stones and carrying away broken bricks that somebody had buried "
    "long ago. By the end of June she had planted tomatoes, beans and a young apple tree, and she invited us all "
    "to come and see it"
)
_GARDEN_DE = (
    "Im letzten Frühling beschloss meine Nachbarin, den kleinen Hof hinter ihrem Haus in einen Garten zu "
    "verwandeln. Sie arbeitete dort jeden Abend nach dem Essen, grub alte Steine aus und trug zerbrochene Ziegel "
    "weg, die jemand vor langer Zeit vergraben hatte. Bis Ende Juni hatte sie Tomaten, Bohnen und einen jungen "
    "Apfelbaum gepflanzt und lud uns alle ein, ihn anzusehen"
)
_TRAIN = (
    "The train to the coast was delayed for nearly two hours because of a fallen tree on the line. Most "
    "passengers waited patiently on the platform, reading or talking quietly, while the children ran up and down "
    "the stairs. When it finally arrived, there were not enough seats for everybody, so some of us had to stand "
    "until the first large station"
)
_TRAIN_FR = (
    "Le train pour la côte a été retardé de près de deux heures à cause d'un arbre tombé sur la voie. La plupart "
    "des passagers attendaient patiemment sur le quai, lisant ou parlant doucement, tandis que les enfants "
    "montaient et descendaient les escaliers en courant. Quand il est enfin arrivé, il n'y avait pas assez de "
    "places pour tout le monde, si bien que certains d'entre nous ont dû rester debout jusqu'à la première grande"
    " gare"
)
_CONTRACT = (
    "Please read the attached contract carefully before you sign it, and send us one copy by post within ten "
    "days. If anything is unclear, our office can explain the details on the phone from Monday to Friday. We will"
    " confirm the start of the work as soon as the signed copy has reached us, and a technician will visit you in"
    " the following week"
)
_CONTRACT_ES = (
    "Lea atentamente el contrato adjunto antes de firmarlo y envíenos una copia por correo en un plazo de diez "
    "días. Si algo no está claro, nuestra oficina puede explicarle los detalles por teléfono de lunes a viernes. "
    "Confirmaremos el comienzo de los trabajos en cuanto nos haya llegado la copia firmada, y un técnico le "
    "visitará la semana siguiente"
)
_MUSEUM = (
    "The museum on the hill shows pictures by painters who lived in this valley more than a hundred years ago. "
    "Entry is free on the first Sunday of each month, and guided tours begin every hour in front of the main "
    "building. Visitors may take photographs without flash, but large bags and umbrellas must be left in the "
    "cloakroom beside the entrance"
)
_MUSEUM_ZH = (
    "山上的博物馆展出一百多年前生活在这个山谷里的画家的作品。每月第一个星期日免费入场，导览每小时在主楼前开始一次。"
    "参观者可以不使用闪光灯拍照，但大包和雨伞必须存放在入口旁边的衣帽间"
)
_SOFTWARE = (
    "The new version of the program starts much faster and uses less memory than the old one. It keeps all "
    "settings, and documents that were opened before are shown on the first page together with the date of the "
    "last change. Anyone who prefers the old layout can switch back to it at any time in the menu under View, "
    "without losing any data"
)
_SOFTWARE_IT = (
    "La nuova versione del programma si avvia molto più velocemente e usa meno memoria della vecchia. Mantiene "
    "tutte le impostazioni, e i documenti aperti in precedenza vengono mostrati nella prima pagina insieme alla "
    "data dell'ultima modifica. Chi preferisce il vecchio layout può tornarvi in qualsiasi momento nel menu "
    "Visualizza, senza perdere alcun dato"
)
_RECIPE = (
    "Cut the onions into thin slices and fry them slowly in butter until they are soft and golden. Add the flour,"
    " stir for a minute, then pour in the warm stock little by little so that no lumps form. Let the soup cook "
    "gently for half an hour, season it with salt, pepper and a little nutmeg, and serve it with toasted bread"
)
_RECIPE_DE = (
    "Schneiden Sie die Zwiebeln in dünne Scheiben und braten Sie sie langsam in Butter, bis sie weich und "
    "goldgelb sind. Geben Sie das Mehl dazu, rühren Sie eine Minute lang und gießen Sie dann nach und nach die "
    "warme Brühe hinein, damit keine Klümpchen entstehen. Lassen Sie die Suppe eine halbe Stunde lang leise "
    "kochen, würzen Sie sie mit Salz, Pfeffer und etwas Muskatnuss und servieren Sie sie mit geröstetem Brot"
)


def _appended(language: str, source: str, target: str, *, word: str, end: tuple[str, str]) -> Edit:
    """A word more at the end, with what that changes at the translation's end."""
    before, after = end
    assert target.endswith(before)
    return Edit(
        "appended", language, (f"{source}.", f"{source} {word}."), (target, target.removesuffix(before) + after)
    )


def _changed(
    language: str, source: str, target: str, *, words: tuple[str, str], spots: tuple[tuple[str, str], ...]
) -> Edit:
    """A word replaced in the middle, with all that it changes in the translation."""
    assert source.count(words[0]) == 1
    changed = target
    for before, after in spots:
        assert changed.count(before) == 1, before
        changed = changed.replace(before, after)
    return Edit("changed", language, (f"{source}.", f"{source.replace(*words)}."), (target, changed))


EDITS: tuple[Edit, ...] = (
    _appended("de", _GARDEN, f"{_GARDEN_DE}.", word="tomorrow", end=("ihn anzusehen.", "ihn morgen anzusehen.")),
    _appended("fr", _TRAIN, f"{_TRAIN_FR}.", word="again", end=("rester debout jusqu'à la première grande gare.",
              "à nouveau rester debout jusqu'à la première grande gare.")),
    _appended("es", _CONTRACT, f"{_CONTRACT_ES}.", word="too", end=("un técnico le visitará la semana siguiente.",
              "un técnico también le visitará la semana siguiente.")),
    _appended("zh", _MUSEUM, f"{_MUSEUM_ZH}。", word="today", end=("大包和雨伞必须存放在入口旁边的衣帽间。",
              "今天大包和雨伞必须存放在入口旁边的衣帽间。")),
    _appended("it", _SOFTWARE, f"{_SOFTWARE_IT}.", word="whatsoever", end=("alcun dato.", "assolutamente alcun dato.")),
    _appended("de", _RECIPE, f"{_RECIPE_DE}.", word="immediately", end=("und servieren Sie sie mit geröstetem Brot.",
              "und servieren Sie sie sofort mit geröstetem Brot.")),
    _changed("de", _GARDEN, f"{_GARDEN_DE}.", words=("broken", "heavy"), spots=(("zerbrochene", "schwere"),)),
    _changed("fr", _TRAIN, f"{_TRAIN_FR}.", words=("quietly", "loudly"), spots=(("doucement", "bruyamment"),)),
    _changed("es", _CONTRACT, f"{_CONTRACT_ES}.", words=("office", "engineers"),
             spots=(("nuestra oficina puede explicarle", "nuestros ingenieros pueden explicarle"),)),
    _changed("zh", _MUSEUM, f"{_MUSEUM_ZH}。", words=("hour", "morning"),
             spots=(("导览每小时在主楼前开始一次", "导览每天早上在主楼前开始"),)),
    _changed("it", _SOFTWARE, f"{_SOFTWARE_IT}.", words=("first page", "start screen"),
             spots=(("nella prima pagina", "nella schermata iniziale"),)),
    _changed("de", _RECIPE, f"{_RECIPE_DE}.", words=("lumps", "crust"),
             spots=(("keine Klümpchen entstehen", "keine Kruste entsteht"),)),
)  # fmt: skip
