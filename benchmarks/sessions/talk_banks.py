"""The words of generated talk, in four languages: what people tell, what others answer, and how one asks for it later."""

from dataclasses import dataclass

__all__ = ["MONTHS", "TONGUES", "Event", "Tongue"]


@dataclass(frozen=True)
class Event:
    """Something that is told. `asked_slots` are those that the question names; `reply` is what is only said when asked back."""

    said: tuple[str, ...]
    ask: tuple[str, ...]
    back: tuple[str, ...]
    asked_slots: tuple[str, ...]
    reply: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tongue:
    """A language: its events, what fills their gaps, and what is said in between."""

    code: str
    events: tuple[Event, ...]
    slots: dict[str, tuple[str, ...]]
    greetings: tuple[str, ...]
    leads: tuple[str, ...]
    tails: tuple[str, ...]
    small_talk: tuple[str, ...]
    synonyms: dict[str, tuple[str, ...]]
    in_month: str
    third: tuple[str, str, str]
    """How a question names somebody: `{who}`, `{poss}` and an auxiliary, with `{name}`."""
    first_person: tuple[str, str, str] | None = None
    """The same for the asker; None where a talk in this language always names its speakers."""

    def subject(self, name: str) -> dict[str, str]:
        """What a question calls the speaker: by name, or I."""
        forms = self.first_person if self.first_person and not name else self.third
        return dict(zip(("who", "poss", "has"), (form.format(name=name) for form in forms), strict=True))


def _list(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split("|"))


MONTHS = {
    "en": _list("January|February|March|April|May|June|July|August|September|October|November|December"),
    "de": _list("Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"),
    "es": _list("enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre"),
    "fr": _list("janvier|février|mars|avril|mai|juin|juillet|août|septembre|octobre|novembre|décembre"),
}

_SLOTS_EN = {
    "kin": _list(
        "sister|brother|mother|father|cousin|aunt|grandmother|neighbour|daughter|nephew|flatmate|boss"
    ),
    "thing": _list(
        "kettle|bicycle|guitar|telescope|sewing machine|tent|camera|sofa|rucksack|canoe|record player|oven|coat|lamp|bookshelf"
    ),
    "colour": _list("dark green|bright red|pale blue|mustard yellow|black|white|orange|silver"),
    "place": _list(
        "flea market|harbour|old library|botanical garden|lighthouse|castle|community centre|train station|art museum|"
        "swimming pool|farm|cathedral|stadium|island|vineyard"
    ),
    "sport": _list("climbing|swimming|running|rowing|skating|hiking|fencing|surfing|dancing|cycling"),
    "food": _list(
        "lentil soup|apple pie|dumplings|paella|lasagne|sourdough bread|curry|pancakes|risotto|goulash"
    ),
    "animal": _list("puppy|kitten|rabbit|parrot|tortoise|hamster|pony|hedgehog"),
    "petname": _list("Pepper|Biscuit|Olive|Moss|Clover|Juniper|Waffle|Pixel|Truffle|Comet"),
    "illness": _list("a bad cold|a broken wrist|back pain|the flu|a sprained ankle|a toothache|a migraine"),
    "course": _list("pottery|Portuguese|first aid|photography|carpentry|sign language|astronomy|knitting"),
    "feeling": _list("nervous|proud|relieved|exhausted|thrilled|disappointed|grateful"),
    "book": _list(
        "a novel about whales|a biography of a pianist|a book on bread|a thriller set in Oslo|poems about the sea"
    ),
    "number": _list("three|four|five|six|seven|eight|nine|ten|twelve|twenty"),
}
_TELLING = ("Oh, lovely! Tell me more.", "That sounds wonderful.", "Really? I had no idea!", "Good for you!")

_EVENTS_EN = (
    Event(
        (
            "I bought a {colour} {thing} at the {place} with my {kin}.",
            "My {kin} and I were buying a {thing} near the {place}; we chose the {colour} one.",
        ),
        (
            "Which colour is the {thing} that {who} got with {poss} {kin}?",
            "What {thing} did {who} buy with {poss} {kin}?",
        ),
        ("A {thing}! Where will you put it?", *_TELLING),
        ("thing", "kin"),
    ),
    Event(
        (
            "I went {sport} with my {kin} near the {place} and we stayed until dark.",
            "My {kin} took me {sport} close to the {place}, my legs still hurt.",
        ),
        ("Where did {who} go {sport} with {poss} {kin}?", "Where were {who} and {poss} {kin} {sport}?"),
        ("I have not been {sport} in years.", *_TELLING),
        ("sport", "kin"),
    ),
    Event(
        (
            "I cooked {food} for {number} people because my {kin} was visiting.",
            "We had {number} guests and I was cooking {food} with my {kin}.",
        ),
        (
            "How many people did {who} cook {food} for?",
            "For how many guests did {who} and {poss} {kin} make {food}?",
        ),
        ("I love {food}! Was there any left?", *_TELLING),
        ("food", "kin"),
    ),
    Event(
        (
            "we adopted a {animal} from the shelter and called it {petname}.",
            "there is a {animal} in our house now, its name is {petname}, my {kin} chose it.",
        ),
        ("What is the name of the {animal} that {who} adopted?", "How did {who} name the {animal}?"),
        ("A {animal}! How is it settling in?", *_TELLING),
        ("animal",),
    ),
    Event(
        (
            "I had {illness} and could not go to the {place} with my {kin}.",
            "because of {illness} I missed the trip to the {place} with my {kin}.",
        ),
        (
            "Why did {who} miss going to the {place} with {poss} {kin}?",
            "What illness kept {who} from the {place} with {poss} {kin}?",
        ),
        ("Oh no, are you feeling better?", "Poor you. Rest well."),
        ("place", "kin"),
    ),
    Event(
        (
            "I signed up for a {course} course at the {place}, it starts in {number} weeks.",
            "I am enrolled in {course} lessons now, {number} evenings at the {place}.",
        ),
        ("Where did {who} take {course} classes?", "At which place were {poss} {course} lessons?"),
        ("{course}! I always wanted to learn that.", *_TELLING),
        ("course",),
    ),
    Event(
        (
            "my {kin} is getting married at the {place}, and I am so {feeling}.",
            "there will be a wedding at the {place}: my {kin} said yes! I feel {feeling}.",
        ),
        (
            "Where does {poss} {kin} marry?",
            "At what place is the marriage of {poss} {kin} that {who} spoke of?",
        ),
        ("A wedding! What will you wear?", "Congratulations to your {kin}!"),
        ("kin",),
    ),
    Event(
        (
            "I lost my {thing} on the way to the {place}; my {kin} found it {number} days later.",
            "somebody returned the {thing} that I had lost near the {place}. My {kin} cried.",
        ),
        ("Where did {who} lose the {thing}?", "Near which place was the {thing} lost by {who}?"),
        ("What luck that it came back!", *_TELLING),
        ("thing",),
    ),
    Event(
        (
            "I am reading {book}, a present from my {kin}.",
            "my {kin} gave me {book} and I read it in {number} evenings.",
        ),
        ("What did {poss} {kin} give as a gift to read?", "Which book did {who} get from {poss} {kin}?"),
        ("Is it any good? I need something to read.", *_TELLING),
        ("kin",),
    ),
    Event(
        (
            "my {kin} is moving to a flat beside the {place}, I carried {number} boxes.",
            "I helped my {kin} move next to the {place}. {number} boxes of plates!",
        ),
        (
            "How many boxes did {who} carry when {poss} {kin} moved?",
            "How many boxes were there at the removal of {poss} {kin}, as {who} told?",
        ),
        ("Moving is so tiring.", *_TELLING),
        ("kin",),
    ),
    Event(
        (
            "I sang in the choir at the {place} for the first time and was {feeling}.",
            "the choir let me sing a solo at the {place}. I felt {feeling} afterwards.",
        ),
        (
            "How did {who} feel after singing at the {place}?",
            "What did {who} feel about the song at the {place}?",
        ),
        ("I wish I had heard you sing!", *_TELLING),
        ("place",),
    ),
    Event(
        (
            "I repaired the {thing} of my {kin} with glue and patience.",
            "fixing my {kin}'s {thing} took me {number} hours.",
        ),
        ("What did {who} fix for {poss} {kin}?", "Which thing of {poss} {kin} was repaired by {who}?"),
        ("You can mend anything!", *_TELLING),
        ("kin",),
    ),
    Event(
        ("I have a new {thing} at last!", "guess who owns a {thing} now!"),
        ("What colour is {poss} new {thing}?", "Which colour did {who} choose for the {thing}?"),
        ("Great! Which colour did you take?", "Finally! What does it look like?"),
        ("thing",),
        (
            "{colour}, of course. It was the last of {number}.",
            "It is {colour}, with {number} scratches on one side.",
        ),
    ),
    Event(
        ("my {kin} and I are planning a trip to an island.", "I booked a holiday with my {kin}!"),
        (
            "How long will {who} travel with {poss} {kin}?",
            "For how many days did {who} book the holiday with {poss} {kin}?",
        ),
        ("How exciting! For how long?", "Nice! How many days?"),
        ("kin",),
        (
            "{number} days, if my {kin} can leave the {animal} alone.",
            "Only {number} days, and one of them for the {place}.",
        ),
    ),
    Event(
        ("I finally told my {kin} the whole story.", "I spoke with my {kin} about it yesterday evening."),
        (
            "How did {poss} {kin} react when {who} told the story?",
            "How was {poss} {kin} after they had talked about it?",
        ),
        ("And? How did it go?", "Oh! What was the reaction?"),
        ("kin",),
        (
            "Rather {feeling}, to my surprise. We had {food} afterwards.",
            "First silent, then {feeling}. We walked to the {place} and back.",
        ),
    ),
    Event(
        (
            "we have been training the {animal} all week.",
            "you should see what {petname} can do, our {animal}!",
        ),
        ("What trick did {poss} {animal} learn, as {who} told?", "What can {poss} {animal} do now?"),
        ("Ha, which trick?", "What did it learn?"),
        ("animal",),
        (
            "It rings a bell for {food}, {number} times a day.",
            "It finds {food} anywhere, even at the {place}!",
        ),
    ),
)

_SMALL_EN = (
    "How was your week, {name}?",
    "Work keeps me busy, but I cannot complain.",
    "It rained all day here, so I stayed in with some {food}.",
    "Did you see the news about the {place}?",
    "I really should call my {kin} more often.",
    "Maybe we should go to the {place} together one day, {name}.",
    "I could not sleep, I kept thinking about the {thing}.",
    "You always know what to say, {name}.",
    "I would love to try {sport} some day.",
    "That reminds me of when we were younger.",
    "My {kin} says hello, by the way.",
    "I was so {feeling} on Monday, no idea why.",
    "Time flies. I still have to answer {number} letters.",
    "Do you think a {animal} would like our garden?",
)

_LEADS_EN = (
    "So,",
    "Well,",
    "Guess what:",
    "Big news:",
    "You will not believe it:",
    "Yesterday was special:",
    "",
    "",
)

_ENGLISH = Tongue(
    "en",
    _EVENTS_EN,
    _SLOTS_EN,
    ("Hi {name}! Good to hear from you again.", "Hey {name}, how have you been?", "Hello {name}! It has been a while."),
    _LEADS_EN,
    ("It was a good day.", "I am still smiling.", "What a week!", "More about that soon.", ""),
    _SMALL_EN,
    {
        "colour": ("shade",), "mother": ("mum",), "father": ("dad",), "sofa": ("couch",), "rucksack": ("backpack",),
        "bicycle": ("bike",), "buy": ("purchase",), "cook": ("prepare",), "guests": ("visitors",), "illness": ("sickness",),
        "classes": ("lessons",), "gift": ("present",), "fix": ("repair", "mend"), "holiday": ("vacation",),
        "go": ("head",), "react": ("respond",), "adopted": ("took in",), "lost": ("misplaced",),
    },
    "in {month} {year}",
    ("{name}", "{name}'s", "has"),
    ("I", "my", "have"),
)  # fmt: skip

_GERMAN = Tongue(
    "de",
    (
        Event(
            ("Ich habe mit {kin} am {place} {thing} gekauft, in {colour}.", "{kin} und ich kauften {thing} beim {place}, natürlich in {colour}."),
            ("Welche Farbe hat {thing}, das {who} mit {kin} gekauft {has}?", "In welcher Farbe {has} {who} {thing} gekauft?"),
            ("Wo stellst du das hin?", "Das klingt schön!"),
            ("thing", "kin"),
        ),
        Event(
            ("Gestern war ich mit {kin} beim {place} zum {sport}, meine Beine schmerzen noch.", "{kin} nahm mich zum {sport} mit, ganz in der Nähe vom {place}."),
            ("Wo war {who} mit {kin} beim {sport}?", "An welchem Ort {has} {who} mit {kin} {sport} gemacht?"),
            ("Das habe ich seit Jahren nicht gemacht.", "Erzähl mehr davon!"),
            ("sport", "kin"),
        ),
        Event(
            ("Wir hatten {number} Gäste und ich kochte {food}.", "Ich musste {food} für {number} Leute kochen, {kin} half dabei."),
            ("Für wie viele Leute {has} {who} {food} gekocht?", "Wie viele Gäste bekamen {food} von {who}?"),
            ("Ist noch etwas übrig?", "Das klingt schön!"),
            ("food",),
        ),
        Event(
            ("Endlich habe ich {thing}!", "Rate mal, wer jetzt {thing} besitzt!"),
            ("Welche Farbe hat {thing} von {who}?",),
            ("Toll! Welche Farbe hast du genommen?", "Wie sieht es aus?"),
            ("thing",),
            ("Natürlich {colour}, das letzte von {number}.", "In {colour}, mit {number} kleinen Kratzern."),
        ),
        Event(
            ("Ich habe mich für einen Kurs in {course} angemeldet, am {place}.", "Seit Kurzem lerne ich {course}, {number} Abende am {place}."),
            ("Wo lernt {who} {course}?", "An welchem Ort ist der Kurs in {course} von {who}?"),
            ("Das wollte ich auch immer lernen.", "Sehr gut!"),
            ("course",),
        ),
    ),
    {
        "kin": _list("meine Schwester|mein Bruder|meine Mutter|mein Vater|meine Tante|meine Nachbarin|meine Tochter|mein Neffe"),
        "thing": _list("ein Fahrrad|eine Gitarre|ein Zelt|eine Kamera|ein Sofa|eine Lampe|ein Kanu|ein Fernrohr"),
        "colour": _list("Dunkelgrün|Hellrot|Blassblau|Schwarz|Weiß|Orange|Silber"),
        "place": _list("Flohmarkt|Hafen|Schloss|Leuchtturm|Bahnhof|Museum|Schwimmbad|Bauernhof|Stadion|Weinberg"),
        "sport": _list("Klettern|Schwimmen|Laufen|Rudern|Wandern|Fechten|Tanzen"),
        "food": _list("Linsensuppe|Apfelkuchen|Knödel|Gulasch|Pfannkuchen|Lasagne"),
        "course": _list("Töpfern|Portugiesisch|Fotografie|Tischlern|Gebärdensprache|Sternkunde"),
        "number": _list("drei|vier|fünf|sechs|sieben|acht|neun|zwölf|zwanzig"),
    },
    ("Hallo {name}, schön von dir zu hören!", "Na {name}, wie geht es dir?"),
    ("Also:", "Stell dir vor:", "Große Neuigkeiten:", ""),
    ("Das war ein guter Tag.", "Mehr davon bald.", ""),
    (
        "Wie war deine Woche, {name}?", "Bei der Arbeit ist viel los.", "Hier hat es den ganzen Tag geregnet.",
        "Ich sollte {kin} öfter anrufen.", "Wir könnten einmal zusammen zum {place} gehen, {name}.", "Ich würde gern {sport} lernen.",
        "Die Zeit vergeht so schnell, ich muss noch {number} Briefe schreiben.", "Ich denke ständig an {food}.",
    ),
    {"Leute": ("Personen",), "Ort": ("Platz",)},
    "im {month} {year}",
    ("{name}", "{name}s", "hat"),
)  # fmt: skip

_SPANISH = Tongue(
    "es",
    (
        Event(
            ("Compré {thing} con {kin} cerca del {place}, de color {colour}.", "{kin} y yo compramos {thing} en el {place}, al final de color {colour}."),
            ("¿De qué color es {thing} que compró {who} con {kin}?", "¿Qué color tenía {thing} comprado por {who} y {kin}?"),
            ("¿Y dónde lo vas a poner?", "¡Qué bien!"),
            ("thing", "kin"),
        ),
        Event(
            ("Ayer fui a {sport} con {kin} cerca del {place} y aún me duelen las piernas.", "{kin} me llevó a {sport} junto al {place}."),
            ("¿Dónde estuvo {who} con {kin} para {sport}?", "¿En qué lugar fueron {who} y {kin} a {sport}?"),
            ("Hace años que no lo hago.", "Cuéntame más."),
            ("sport", "kin"),
        ),
        Event(
            ("Teníamos {number} invitados y cociné {food}.", "Estuve cocinando {food} para {number} personas con {kin}."),
            ("¿Para cuántas personas cocinó {who} {food}?", "¿Cuántos invitados comieron {food} en casa de {who}?"),
            ("¿Quedó algo?", "¡Qué rico!"),
            ("food",),
        ),
        Event(
            ("¡Por fin tengo {thing}!", "¡Adivina quién tiene {thing}!"),
            ("¿De qué color es {thing} de {who}?",),
            ("¡Genial! ¿Qué color elegiste?", "¿Y cómo es?"),
            ("thing",),
            ("Color {colour}, el último de {number}.", "Es {colour}, con {number} pequeños rasguños."),
        ),
        Event(
            ("Me apunté a un curso de {course} en el {place}.", "Ahora aprendo {course}, {number} tardes en el {place}."),
            ("¿Dónde aprende {who} {course}?", "¿En qué lugar son los cursos de {course} de {who}?"),
            ("Siempre quise aprender eso.", "¡Qué bien!"),
            ("course",),
        ),
    ),
    {
        "kin": _list("mi hermana|mi hermano|mi madre|mi padre|mi tía|mi vecina|mi hija|mi sobrino"),
        "thing": _list("una bicicleta|una guitarra|una tienda de campaña|una cámara|un sofá|una lámpara|una canoa|un telescopio"),
        "colour": _list("verde oscuro|rojo|azul claro|negro|blanco|naranja|plateado"),
        "place": _list("mercadillo|puerto|castillo|faro|museo|estadio|viñedo|jardín botánico|polideportivo"),
        "sport": _list("escalar|nadar|correr|remar|patinar|bailar|caminar"),
        "food": _list("sopa de lentejas|tarta de manzana|paella|lasaña|tortitas|empanadas"),
        "course": _list("cerámica|portugués|fotografía|carpintería|lengua de signos|astronomía"),
        "number": _list("tres|cuatro|cinco|seis|siete|ocho|nueve|doce|veinte"),
    },
    ("¡Hola, {name}! Me alegro de saber de ti.", "¿Qué tal, {name}?"),
    ("Bueno,", "¿Sabes qué?", "Gran noticia:", ""),
    ("Fue un buen día.", "Ya te contaré más.", ""),
    (
        "¿Cómo fue tu semana, {name}?", "Hay mucho trabajo estos días.", "Aquí llovió todo el día.",
        "Debería llamar más a {kin}.", "Podríamos ir juntos al {place}, {name}.", "Me encantaría {sport} algún día.",
        "El tiempo vuela, aún tengo que escribir {number} cartas.", "No dejo de pensar en {food}.",
    ),
    {"personas": ("gente",), "lugar": ("sitio",)},
    "en {month} de {year}",
    ("{name}", "{name}", "ha"),
)  # fmt: skip

_FRENCH = Tongue(
    "fr",
    (
        Event(
            ("J'ai acheté {thing} avec {kin} près du {place}, de couleur {colour}.", "{kin} et moi achetions {thing} au {place}, finalement de couleur {colour}."),
            ("De quelle couleur est {thing} que {who} {has} acheté avec {kin} ?", "Quelle couleur avait {thing} de {who} et {kin} ?"),
            ("Et où vas-tu le mettre ?", "Quelle chance !"),
            ("thing", "kin"),
        ),
        Event(
            ("Hier je suis allé {sport} avec {kin} près du {place}, j'ai encore mal aux jambes.", "{kin} m'a emmené {sport} à côté du {place}."),
            ("Où {who} était avec {kin} pour {sport} ?", "À quel endroit {who} et {kin} sont allés {sport} ?"),
            ("Je ne l'ai pas fait depuis des années.", "Raconte !"),
            ("sport", "kin"),
        ),
        Event(
            ("Nous avions {number} invités et j'ai cuisiné {food}.", "Je cuisinais {food} pour {number} personnes avec {kin}."),
            ("Pour combien de personnes {who} {has} cuisiné {food} ?", "Combien d'invités ont mangé {food} chez {who} ?"),
            ("Il en reste ?", "Miam !"),
            ("food",),
        ),
        Event(
            ("J'ai enfin {thing} !", "Devine qui possède maintenant {thing} !"),
            ("De quelle couleur est {thing} de {who} ?",),
            ("Super ! Quelle couleur as-tu prise ?", "À quoi ça ressemble ?"),
            ("thing",),
            ("{colour}, le dernier de {number}.", "En {colour}, avec {number} petites rayures."),
        ),
        Event(
            ("Je me suis inscrit à un cours de {course} au {place}.", "J'apprends {course} maintenant, {number} soirs au {place}."),
            ("Où {who} apprend {course} ?", "À quel endroit sont les cours de {course} de {who} ?"),
            ("J'ai toujours voulu apprendre ça.", "Bravo !"),
            ("course",),
        ),
    ),
    {
        "kin": _list("ma sœur|mon frère|ma mère|mon père|ma tante|ma voisine|ma fille|mon neveu"),
        "thing": _list("un vélo|une guitare|une tente|un appareil photo|un canapé|une lampe|un canoë|un télescope"),
        "colour": _list("vert foncé|rouge vif|bleu pâle|noir|blanc|orange|argent"),
        "place": _list("marché|port|château|phare|musée|stade|vignoble|jardin botanique"),
        "sport": _list("grimper|nager|courir|ramer|patiner|danser|marcher"),
        "food": _list("soupe aux lentilles|tarte aux pommes|paella|lasagnes|crêpes|ratatouille"),
        "course": _list("poterie|portugais|photographie|menuiserie|langue des signes|astronomie"),
        "number": _list("trois|quatre|cinq|six|sept|huit|neuf|douze|vingt"),
    },
    ("Salut {name}, contente d'avoir de tes nouvelles !", "Bonjour {name}, comment vas-tu ?"),
    ("Alors,", "Devine :", "Grande nouvelle :", ""),
    ("C'était une belle journée.", "Je te raconterai.", ""),
    (
        "Comment était ta semaine, {name} ?", "Il y a beaucoup de travail.", "Il a plu toute la journée ici.",
        "Je devrais appeler plus souvent {kin}.", "On pourrait aller ensemble au {place}, {name}.", "J'aimerais {sport} un jour.",
        "Le temps passe vite, je dois encore écrire {number} lettres.", "Je ne fais que penser à {food}.",
    ),
    {"personnes": ("gens",), "endroit": ("lieu",)},
    "en {month} {year}",
    ("{name}", "{name}", "a"),
)  # fmt: skip

TONGUES = {tongue.code: tongue for tongue in (_ENGLISH, _GERMAN, _SPANISH, _FRENCH)}
