"""Tells an instruction that stands from everything else that people say.

A constraint is an instruction to the agent that outlives the request it came with: "never touch migrations/", "you must
run the linter first", "必须先运行测试". It is known by its form and not by a word alone: by how a clause begins (a verb
in the imperative, a negated one, a second person with a modal verb) and by what that verb and its scope are. "I don't
have the number" has a "don't" and is a statement; "Fix the bug" is an imperative and is the task itself.

    find_constraints("Fix a.py. Never touch b.py, I don't own it.")  →  ["Never touch b.py, I don't own it."]

Sentences are looked at clause by clause, so that what follows a colon or a comma counts as well. Clauses that hold English
function words are judged by the English forms alone: "no changes" is not Spanish.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["find_constraints", "is_constraint", "is_lasting", "sentences", "without_code"]

# The long ones are compiled at their first use: that takes 40 ms, which a start of the program need not spend.
_compile = cache(re.compile)

# It begins with one of few characters, so that `re` skips all others; a line break is not the end of what is said. Nor is
# a mark within code: "the `# service=...` line".
_SENTENCE_END = re.compile(
    r"([.!?。！？\n])(?:(?<=[.!?])(?!`\s+[a-z])[\"'”’)\]*_`]*\s+|(?<=[。！？])|(?<=\n)\n*)"
)
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_LONG_MESSAGE = 4_000
_SHORTEST_SENTENCE, _LONGEST_SENTENCE = 5, 300
_MOST_CLAUSES = 24
_BULLET = re.compile(r"^(?:(?:[-*•>+–]|\d{1,3}[.)]|[#]{1,6}|\[[ xX]\])\s+)+")
_QUESTION = re.compile(r"[?？]\W*$|[吗呢嗎]\W*$|(?:ですか|ますか|까요|나요|니까)\W*$")
_ASKS_FOR_GOOD = re.compile(
    r"(?:can|could|would|will) you (?:please )?(?:always|never|only|make sure|ensure|stop)\b"
)
_CLAUSE = re.compile(
    r"([,;:，；：、—–]\s*|\s-\s|\s+(?:but|and|so|however|aber|und|mais|et|pero|y|mas|e|ma|но|и)\s+)"
)
_WRAPPING = "\"'“”‘’`*_([{<> \t"

# What may stand before an instruction without being part of it.
_OPENING = re.compile(
    r"(?:(?:please|pls|kindly|also|just|ok(?:ay)?|oh|well|hey|hi|hello|then|again|still|and|but|so|"
    r"remember|note|"
    r"important(?:ly)?|warning|caution|rules?|reminder|otherwise|instead|actually|for now|in general|"
    r"generally|"
    r"by default|by the way|btw|basically|in addition|additionally|finally|first|bitte|auch|aber|und|y|pero|además|también|et|mais|aussi|mas|também|ma|anche|и|но|также|"
    r"s[’']il (?:te|vous) pla[iî]t|merci de|svp|por favor|per favore|alsjeblieft|graag|пожалуйста|також|"
    r"proszę|"
    r"lütfen|tolong|mohon|tapi|tetapi|dan|xin|vui lòng|nhưng|maar|men|e|ama|لكن|ولكن|من فضلك|رجاءً?|لو سمحت|"
    r"لطفاً?|اما|و)(?=[\s,:!.]|$)[\s,:!.]*)+|(?:(?:请|請|拜托|麻烦|麻煩)[\s，：]*)+",
    re.IGNORECASE,
)

_ENGLISH_WORDS = re.compile(
    r"\b(?:the|is|are|was|were|of|it|this|that|you|i'\w+|my|with|have|has|your|any|for|and|to|be|needed|"
    r"found|yet)\b"
)

# Verbs that tell how to work rather than what to do: on their own they make a constraint.
_MANNER = (
    r"use|reuse|prefer|avoid|ensure|make (?:sure|certain)|be (?:sure|careful|concise|brief|consistent|polite|"
    r"strict|thorough)|stick (?:to|with)|follow|respect|preserve|maintain|(?:limit|restrict|treat|"
    r"assume) (?=(?:the|your|it|this|that|"
    r"these|all|any|each|every|no|them|changes)\b)|obey|adhere|comply|refrain|abide|beware|keep(?! (?:me|"
    r"up|going|on|calm|it up)\b)|leave .{1,60}\b(?:alone|as (?:it |they )?"
    r"(?:is|are)|untouched|unchanged|out|intact|be)\b|remember(?: to| that)?|(?:don[’']t|do not|"
    r"never) forget|"
    r"wait (?:for|until)|ask (?:me |us )?(?:before|first)|ask for (?:my |our )?(?:approval|permission|"
    r"confirmation)|"
    r"(?:answer|reply|respond|speak|write|talk|communicate)\b(?: to me)?(?: everything|"
    r" all .{1,30})? (?:only |always )?in|"
    r"let me (?:approve|review|confirm) .{1,60}\b(?:before|first)"
)
# Verbs of single deeds: these need a scope ("before every commit") to be more than the task itself.
_DEED = (
    r"run|write|add|fix|update|create|commit|push|pull|test|check|ask|tell|show|explain|call|send|open|"
    r"read|edit|"
    r"change|remove|delete|rename|move|install|build|deploy|format|lint|document|log|report|list|print|"
    r"return|put|"
    r"start|stop|begin|end|include|exclude|review|verify|validate|give|provide|do|set|get|make|take|start|"
    r"save|"
    r"store|inform|notify|confirm|quote|cite|mention|wrap|name|place|apply|refactor|handle|raise|throw|"
    r"escape|sort|"
    r"contact|rebase|squash|tag|bump|release|cancel|book|charge|refund|work|reply|answer|respond|stage|"
    r"generate|prefix|mark"
)
_SCOPE = (
    r"from now on|going forward|in (?:the )?future|henceforth|every time|each time|whenever|at all times|"
    r"(?:before|after|on|at) (?:each|every|any)\b|in (?:all|every) (?:cases?|files?|replies|answers|"
    r"commits?)\b|before (?:you|committing|pushing|merging|"
    r"deploying|making|changing|editing|running|doing|sending|replying|answering|writing|calling|asking)\b|"
    r"unless (?:i|we|you|told|asked|it|there)\b|until (?:i|we|told|further)\b|without (?:asking|my|our|"
    r"first|exception|"
    r"confirm\w*|permission|approval)\b|as a rule|every (?:time|commit|day|step|release|push|change)$"
)
_NO_DEED = (  # what follows "no" in an answer, not in a ban
    r"me|se|lo|te|le|problems?|worries|thanks?|thank|idea|need|longer|one|luck|way|doubt|that|this|it|its|"
    r"i|we|he|she|they|you|there|"
    r"more|other|further|matter|rush|hurry|wonder|sign|result|results|response|reply|answer|such|big deal|"
    r"go|not|"
    r"questions?|sir|ma[’']?am|actually|sorry|wait|but|just|the|what|really|please|error|errors|output|"
    r"change|clue|"
    r"success|and|or|only|because|since|if|when|is|are|was|were|can|could|will|would|do|does|did|don[’']t|"
    r"my|our|\w+ (?:were|"
    r"was|is|are|has|have|had|found|yet|so far|left|here|there|available|exists?)\b"
)
_STATIVE = (  # "don't know": the speaker is left out, and it is a statement
    r"(?:worry|know|think|mind|have|see|want|need|get|remember|understand|care|believe|like|recall|bother|"
    r"even have|"
    r"really|feel|own|seem|work|exist|you (?:think|have|know|want|see|agree|remember))\b"
)
_ENGLISH = "|".join(
    (
        rf"(?:{_MANNER})\b",
        rf"(?:do not|don[’']?t)\b(?! {_STATIVE}) \w|(?:do not|don[’']t) bother (?:with|to)\b",
        (
            r"never\b(?! (?:mind|been|had|got|gotten|seen|heard|was|did|is|has|have|a\b|the\b|before|"
            r"again$|in\b|\w+ed\b|"
            r"received|made|took|went|came|gave|knew|told|left|sent|again)) [a-z]"
        ),
        rf"always (?:{_DEED}|{_MANNER}|[a-z]+ (?:the|a|an|all|with|in|to|from)\b)(?<!been)(?! been)",
        (
            rf"only (?:ever )?(?:{_DEED}|{_MANNER})\b|only (?:if|when|after|once) (?:i|we) (?:say|ask|tell|"
            rf"confirm|approve)"
        ),
        rf"(?:{_DEED}|be)\b(?=.*(?:\b(?:{_SCOPE}))|(?: \S+){{0,2}} (?:always|never|only)\b)",
        (
            rf"(?:{_SCOPE}),? (?:please |always |never |only |just )*(?:{_DEED}|{_MANNER}|you|do not|"
            rf"don[’']t)\b"
        ),
        r"(?:from now on|going forward|henceforth)\b",
        r"(?:stop|quit|no longer) [a-z]+ing\b",
        r"under no circumstances|in no case|at no point|by no means",
        (
            r"(?:it is|it[’']s) (?:important|essential|crucial|critical|vital|mandatory|"
            r"imperative) (?:that|to)\b"
        ),
        (
            r"you (?:must|shall|have to|need to|ought to|may (?:not|only|never)|can only|"
            r"will (?:always|never|only|not)|"
            r"are (?:not |only |never )?(?:allowed|supposed|expected|required|permitted|forbidden|to)|"
            r"aren[’']t allowed)\b"
        ),
        (
            r"you (?:should|shouldn[’']t|should not|cannot|can[’']t|can not|mustn[’']t|ought not)\b"
            r"(?! (?:see|get|have|find|know|be able|already|imagine|believe|do (?:that|this|anything)|"
            r"help|be serious|"
            r"really|just|even|tell me|hear|receive))"
        ),
        r"(?:can|could|would|will) you (?:please )?(?:always|never|only|make sure|ensure|stop|avoid)\b",
        (
            r"i (?:want|need|expect|require|[’']?d like|would like|ask) (?:that )?you (?:to )?"
            r"(?:always|never|only|not|avoid|make sure|ensure|use|keep|stick|follow)\b"
        ),
        (
            r"(?:i|we)(?:[’']d| would| strongly| really| always| generally| much)* (?:prefer|"
            r"rather)\b(?!red)(?! not(?:\W*$| (?:say|share|give|tell|disclose|provide|answer)\b))"
        ),
        (
            r"(?:i|we) (?:don[’']t|do not|never) want (?:you|us|any|anything|anyone|it to|this to|"
            r"the \w+ to|to "
            r"(?:see|spend|pay|use|change|lose|break|touch|add|have to))\b"
        ),
        (
            r"(?:i|we)(?:[’']d| would) (?:like|appreciate) (?:it )?(?:you|if you) .*\b(?:always|never|only|"
            r"not)\b"
        ),
        r"we (?:must|shall)\b(?! have)|we should (?:never|always|only|not|avoid|keep|use|prefer)\b",
    )
)
# A ban without a verb, as a sentence of its own.
_BAN = re.compile(
    rf"no (?!(?:{_NO_DEED})\b)(?![\w-]+ \w+s (?:it|its|the|this|that|them|these|those)\b)[a-z][\w-]*(?<![ao])\b(?!.*\b(?:needed|required|requested|necessary|found|"
    rf"findings|is|are|was|were|has|had)\b)"
    r"(?: [^\s]+){0,6}$"
)
_LEAST_PASTED = 8  # lines
_OUTPUT = re.compile(  # how a line of a program's output begins, and no line that a person types
    r"\s*(?:[=*#+~_.│├└╭╰|-]{3,}|[\[{}\])]|[✓✔✗✘❯➜●⎿]|[$%>] \S|[+-]\S|@@ |\"[\w ]+\": ?|\d{2}:\d{2}|\d{4}-\d\d|\w+\(\)|"
    r"at \S+[(:]|File \"|Traceback |diff --git|commit [0-9a-f]{7}|(?:INFO|WARN|ERROR|DEBUG|PASS|FAIL|ok)\b|"
    r"(?:[\w.-]*/)+[\w.-]+(?::\d+|$)|[\w.-]+\.\w{1,4}:\d+|\d+ \w+ changed|create mode|Author: |Date: )"
)
_FILE_AND_LINE = re.compile(r"(?<![\w/-])[\w/-]++\.\w{1,5}:\d+")
_POINTS_BACK = re.compile(r"(?:instead|otherwise|rather|in that case|if so|if not)\b", re.IGNORECASE)
_SUBJECT = re.compile(r"\b(?:i|we|they|it|you|he|she|which|who|that|this|ich|wir|je|yo|io|ik)\b")
_CODE = re.compile(
    r"[{|<]|(?:func|def|class|const|let|var|import|from|return|if \()\b.*[({=]|.*[;{]$|\d+\s*[\t|:→]|[(]no "
)
_TWO_WORDS = re.compile(r"\w\W+\w|[^\x00-\u024f]")
_HAS_WORD = re.compile(r"[a-z]{3}|[^\x00-\x7f]")  # every form of an instruction has one: `use`, `nie`, `不`
_LEADS_ON = re.compile(r"[:：]\W*$")  # what it announces stands elsewhere
# Obligation of a thing or of a third person, anywhere in a clause that the speaker is not the subject of.
_OBLIGATION = re.compile(
    r"\b(?:must(?:n[’']t| not| never| always| only)?(?! (?:have|be (?:a|an|some|the|something|wrong|joking|"
    r"because))\b)|"
    r"may (?:only|never|not be \w+ed)|shall(?: not)?|(?:should|can|could|will) (?:never|only)|"
    r"should (?:always|not|at most)(?! (?:be (?:this|that|so|hard)|happen|take|have|work))|"
    r"(?:is|are) (?:strictly )?(?:required|forbidden|prohibited|mandatory|off[- ]limits|banned|"
    r"out of (?:scope|bounds)|"
    r"not (?:allowed|permitted|acceptable|negotiable)|to be (?:left|kept|used|avoided|treated|written|done)|"
    r"never to)|required (?:before|for|in) (?:every|each|any|all)|"
    r"(?<!\bi )(?<!\bwe )(?<!\byou )(?<!\bthey )(?:has|have) to (?:go|be|stay|remain|come|use)|(?:every|"
    r"each|all) (?!.*\byou need)[\w ]{1,30}(?:should|needs?)|(?:nothing|nobody|no one|none of \w+) (?:may|should)|"
    r"(?:the |this )?(?:assistant|agent|model|bot|ai) (?:should|shall|will|needs to|has to))\b"
)
_FIRST_PERSON = re.compile(
    r"(?:^|\b(?:that|because|if|when|but|so|and|since|think|guess|know) )(?:i|we|this|that|he|she|they|"
    r"there|it|someone|somebody|"
    r"customers?|people)(?:[’'](?:m|ve|d|ll|re|s))?\b|.*\b(?:says?|said|told|claims?)\b"
)

# The other languages: how a clause begins that is an instruction which stands.
_BEGINNINGS = (
    r"(?:verwendet?|benutzt?e?|nutzt?e?|nimm|behaltet?|behalte|lasst?|achtet?|achte|vermeidet?|vermeide|"
    r"beachtet?|beachte|halte? dich|stell\w* sicher|denke? daran|vergiss nicht|antworte\w*|respektiere|"
    r"bevorzuge|beschränke|ändere nichts)\b|(?!ich\b|wir\b|es\b|das\b|er\b|sie\b|der\b|die\b|"
    r"ein)[a-zäöüß]+e?(?: (?:sie|mir|mich|dir|dich|bitte|den|die|das|der|dem|vor|an|in|alle|diese\w*|auch|"
    r"hier|dabei|[\w./-]+)){0,5} (?:niemals|nie(?! )|nie (?!wieder)|stets)\b|(?:[a-zäöü]{2,}(?:e|n sie|t)|"
    r"schreib|fass|mach|frag|gib|lösch|sag|zeig|änder|führ) (?:\S+ ){0,4}(?:nicht|kein\w*|nur|immer|vorher|"
    r"jedes mal|vor jede\w+|nach jede\w+|künftig|ab jetzt|ab sofort|"
    r"von nun an)\b(?<!habe nicht)(?<!ist nicht)(?<!geht nicht)|(?:niemals|nie|immer|nur|stets|kein\w*|"
    r"nicht|ab jetzt|ab sofort|künftig|von nun an|vor jede\w+|nach jede\w+)\b.*(?:[a-zäöüß]{2,}(?:en|ern|"
    r"eln)|sein)$|keine? (?:neuen?|weiteren?|zusätzlichen?|änderungen|emojis|kommentare|anglizismen|"
    r"abkürzungen)\b|(?:du|ihr|sie|man) (?:darf|darfst|dürft|dürfen|muss|musst|müsst|müssen|sollst|sollt|"
    r"sollen|solltest|sollten|sollte)\b|es (?:ist|sind) (?:verboten|untersagt|nicht erlaubt|wichtig|"
    r"zwingend)|ich möchte (?:nicht )?,? ?dass du|(?:ne |n[’'])(?:(?:le|la|les|l[’']|me|m[’']|y|en|jamais|"
    r"pas|rien|plus) ?)*[a-zà-ÿ]+\b.*\b(?:pas|jamais|plus|rien|aucune?|que)\b|ne (?:jamais|pas|plus|"
    r"rien) [a-zà-ÿ]+(?:er|ir|re)\b|(?:utilise[rz]?|garde[rz]?|évite[rz]?|assure[sz]?[- ](?:toi|vous)|"
    r"veille[rz]?|préfère|préfére[rz]|respecte[rz]?|laisse[rz]?|limite[rz]?|réponds|répondez|répondre|"
    r"conserve[rz]?|suis|suivez|pense[rz]? à|n[’']oublie[rz]?)\b|(?!je\b|j[’']|il\b|elle\b|on\b|nous\b|"
    r"ils\b|ça\b|c[’']|le\b|la\b|les\b|un|mon|ma\b|mes\b)[a-zà-ÿ]+(?:e|ez|s|er|is|"
    r"ds)(?: \S+){0,4} (?:toujours|uniquement|seulement|à chaque|avant chaque|après chaque|désormais)\b|"
    r"(?:toujours|désormais|dorénavant|à partir de maintenant)\b.*|il (?:ne )?faut\b|il est (?:interdit|"
    r"obligatoire|impératif|important)|interdi(?:t|ction) d|défense de|(?:tu|vous) (?:ne |n[’'])?(?:dois|"
    r"devez|devrais|devriez|peux pas|pouvez pas|peux (?:pas|jamais)|pouvez (?:pas|jamais))\b|"
    r"pas de (?!problème|souci|panique|chance|réponse|nouvelles?\b)\S+|aucune? (?:nouvelle?|modification|"
    r"changement)\b|(?:no|nunca|jamás)(?: (?:me|te|lo|la|los|las|le|les|se))? (?!sabes|tienes|puedes|eres|"
    r"entiendes|quieres|crees|has\b|ves\b|es\b|estás|haces|gracias|más|mas\b|pues|antes|otras|unas|las\b|"
    r"mis)[a-záéíóúñ]{2,}(?:es|as|áis|éis)\b|(?:no|nunca|jamás) (?:(?:me|nos|lo|la|los|las|le|les|se) )?(?:llame|"
    r"moleste|contacte|mande|pida|pregunte|reembolse|devuelva|cierre|use|utilice|cambie|modifique|toque|"
    r"borre|elimine|haga|olvide|envíe|escriba|agregue|añada|incluya|cancele|cobre|suba|ejecute|cree|rompa|"
    r"instale|publique|comparta|actualice)n?\b|(?:usa|utiliza|usad|mantén|mantenga|asegúrate|asegúrese|"
    r"evita|evite|deja|deje|respeta|respete|recuerda|recuerde|prefiere|responde|responda|conserva|"
    r"sigue las|siga las|utilice|limítate)\b(?! (?:de )?(?:fallar|fallando|sin))|(?:siempre|sólo|solo|"
    r"solamente|únicamente) (?!hay|es\b|he\b|ha\b|me\b|se\b|un|quiero|quería|tengo|falta|que\b|el\b|la\b|"
    r"los\b|las\b|para\b|por\b|con\b|de\b|no\b|una\b|puedo|necesito|pido|falla)[a-záéíóúñ]+(?:a|e|as|es|an|"
    r"en|ar|er|ir)\b|[a-záéíóúñ]+(?:a|e|en|an) (?:siempre|sólo|solo|solamente|"
    r"únicamente)\b(?<!falla siempre)|(?:debes?|deben|tienes que|tiene que|no (?:debes?|deben|puedes|"
    r"pueden (?:usar|cambiar)|se (?:debe|puede|permite|deben))|hay que|está prohibido|queda prohibido|"
    r"es obligatorio|a partir de ahora|de ahora en adelante|cada vez que (?!me|lo|la|se|yo|intento|abro)|"
    r"antes de cada|después de cada|prohibido)\b|(?:não|nunca|jamais|nem)(?: (?:me|o|a|os|as|"
    r"se))? (?:altere|mude|use|apague|toque|modifique|remova|exclua|delete|faça|envie|esqueça|crie|"
    r"adicione|escreva|mexa|quebre|inclua|utilize|instale|execute|publique|cancele|troque|edite|ignore|"
    r"copie|invente)m?\b|(?:utilize|mantenha|evite|garanta|certifique-se|lembre(?:-se)?|deixe|respeite|"
    r"prefira|responda|siga as)\b|(?:sempre|só|somente|apenas) (?!que|há|foi|é\b|um|uma|o\b|a\b|os\b|as\b|"
    r"quero|tenho|preciso|para|por|com|de\b)[a-zà-ÿ]+(?:e|a|em|am|ar|er|ir)\b|[a-zà-ÿ]+(?:e|a|em|"
    r"am) (?:sempre|somente|apenas)\b|(?:você|vocês|voce) (?:não )?(?:deve|devem|pode (?:apenas|só|usar)|"
    r"precisa|precisam|tem que)\b|é (?:proibido|obrigatório|necessário)\b|a partir de agora|"
    r"de agora em diante|não (?:deve|devem|se deve|é permitido)|antes de cada|toda vez que (?!eu)|"
    r"non (?:mai |lo |la |li |le )?[a-zà-ù]{2,}(?:are|ere|ire|arlo|arla|erlo)\b(?! (?:problem|dubbi))|"
    r"non [a-zà-ù]{2,}(?:ate|ete|ite)(?:mi|ci|lo|la|li|le)?\b|(?:usate|mantieni|mantenete|evita(?:te)?|assicurati|assicuratevi|"
    r"lascia(?:te)?|rispetta(?:te)?|ricorda(?:ti)?|preferisci|rispondi|rispondete|segui le|attieniti)\b|"
    r"[a-zà-ù]+(?:a|i|are|ere|ire|ate|ete|ite) (?:\S+ ){0,2}(?:sempre|solo|soltanto|solamente|"
    r"prima di ogni)\b|(?:mai|sempre|solo) [a-zà-ù]+(?:are|ere|ire)\b|(?:devi|dovete|non (?:devi|dovete|"
    r"puoi|si (?:deve|può)))\b|bisogna|è (?:vietato|obbligatorio|importante)|d[’']ora in poi|vietato|"
    r"(?:gebruik|houd|hou|zorg|laat|vermijd|respecteer|antwoord|onthoud|blijf bij)\b|(?:raak|verander|"
    r"wijzig|schrijf|verwijder|annuleer|bel|stuur|voeg|controleer|vergeet|test|draai|maak|commit|push|doe|pas|vraag|zet|geef|"
    r"stuur)\b.*\b(?:nooit|niet|geen|altijd|alleen|steeds|voortaan|eerst|bij elke|voor elke|na elke)\b|"
    r"(?:je|u|jij|jullie) (?:moet|moeten|mag|mogen|dient|hoort)\b|(?:nooit|altijd|alleen|voortaan|"
    r"vanaf nu)\b.*|geen (?:nieuwe|extra|emoji)\b|(?:använd|undvik|behåll|se till|följ|brug|undgå|sørg for|"
    r"unngå|bruk|behold)\b|(?:ändra|rör|ta|lägg|skriv|radera|kör|svara|avboka|ring|skicka|ændr|rør|slet|svar|send|endre|kjør)\b.*\b(?:aldrig|"
    r"inte|bara|alltid|endast|aldri|ikke|altid|kun|bare|innan varje|før hver)\b|du (?:måste|får inte|"
    r"får bara|ska|skal|må (?:ikke|aldrig|kun|bare)|bør)\b|(?:никогда |больше |ни в коем случае |ніколи |"
    r"більше )?не [а-яёіїєґ]+(?:й|йте|ь|ьте|(?<!л)и|(?<!л)ите|іть)(?:ся|сь)?(?:$|[\s.!,])|(?:всегда|только|"
    r"обязательно|каждый раз|перед каждым|впредь|отныне|завжди|тільки|"
    r"лише) (?:[а-яёіїєґ]+ ){0,3}[а-яёіїєґ]+(?:й|йте|(?<!л)и|ите|ь|ьте|ть|ти|іть)(?:ся|сь)?(?:$|[\s.!,])|"
    r"(?:используй|оставь|оставляй|сохраняй|соблюдай|следи|убедись|убедитесь|избегай|придерживайся|отвечай|"
    r"старайся|пиши|помни|використовуй|залишай|уникай|дотримуйся|переконайся|відповідай)(?:те)?\b|(?:ты|вы|"
    r"ти|ви) (?:не )?(?:долж|обязан|можешь только|повин|мусиш)\w*|(?:нельзя|запрещено|запрещается|"
    r"необходимо|недопустимо|заборонено|не можна|треба|потрібно завжди|нужно всегда|надо всегда|следует|"
    r"отныне|впредь)(?:$|\s)|(?:nigdy |już )?nie [a-ząćęłńóśźż]+(?:aj|uj|ij|yj|ób|sz|jaj)(?:cie|"
    r"my)?\b(?<!masz)(?<!wiesz)(?<!możesz)|(?:zawsze|tylko|wyłącznie) [a-ząćęłńóśźż]+(?:aj|uj|ij|yj|"
    r"ób)(?:cie)?\b|(?:używaj|zachowaj|unikaj|upewnij się|przestrzegaj|pamiętaj|pozostaw|odpowiadaj|"
    r"stosuj)(?:cie)?\b|(?:musisz|należy|trzeba|nie wolno|powinieneś|powinnaś|zabrania się|od teraz)\b|"
    r"(?:nikdy |už )?ne[a-záčďéěíňóřšťúůýž]+(?:ej|uj|ejte|ujte|ň|ňte)\b|(?:vždy|pouze|"
    r"jen) [a-záčďéěíňóřšťúůýž]+(?:ej|uj|ejte|ujte)\b|(?:používej|zachovej|vyhni se|musíš|nesmíš|musíte|"
    r"nesmíte)\b|(?:asla|hiçbir zaman)\b.*m[ae](?:yın|yin|yınız|yiniz)?$|(?:her zaman|daima|sadece|"
    r"yalnızca|mutlaka|bundan sonra)\b.*(?<!yor)(?<!um)(?<!im)(?<!ım)(?<!üm)(?<!dı)(?<!di)(?<!du)$|"
    r".*m[ae]lı(?:sın|sınız)$|.*m[ae]li(?:sin|siniz)$|.*(?:kullan|değiştir|dokun|sil)m[ae](?:yın|yin)?$|"
    r"(?:đừng|không được|tuyệt đối không|luôn(?: luôn)?|hãy luôn|hãy chỉ|chỉ được|phải|bạn phải|"
    r"bạn không được|từ (?:nay|giờ))\b|(?:jangan|selalu|pastikan|hindari|gunakan|anda harus|kamu harus|"
    r"dilarang|mulai sekarang|tidak boleh)\b|[وف]?(?:لا ت(?!وجد|عمل|زال|ظهر|فتح|كفي|بدو|صل|هم|قلق)|يجب|ممنوع|دائما|دائمًا|استخدم|تأكد|تجنب|احرص|من الآن|"
    r"عليك)|(?:.*\s)?ن(?:کن|زن|ده|فرست|نویس|گذار|خوان)(?:ید)?$|(?:همیشه|هرگز|حتما|فقط) .*(?:کن|ده|نویس|گو|باش)(?:ید)?$|"
    r"อย่า(?!ง)|ห้าม|.*(?:เสมอ|เท่านั้น)$|(?:ποτέ )?μην? (?!ανησυχ)[α-ωά-ώ]+|(?:πάντα|ποτέ|μόνο) (?!δεν)[α-ωά-ώ]+|"
    r"(?:älä|älkää)\b(?! huoli)|[a-zäö]+(?:a|ä|e|i|o|u|y) aina\b|ne (?:\S+ ){0,2}[a-záéíóöőúüű]+(?:j|d|jon|jen|jatok|jetek)\b|"
    r"(?:mindig|soha|csak) .*(?:j|d|jon|jen|jatok|jetek)$|nu (?:mă |îl |o |le )?(?:atinge|modifica|[sș]terge|schimba|folosi|"
    r"trimite|suna|rula|ad[aă]uga|crea|instala|anula|publica|uita)(?:[tț]i)?\b|[a-zăâîșț]+(?:e|ă|i) (?:mereu|întotdeauna)\b|"
    r"[а-яё]+ (?:указывай|пиши|показывай|называй|считай)(?:те)?\b|(?:.* )?(?:olmadan|sormadan|hiçbir)\b.*m[ae](?:yın|yin)?$|"
    r"ו?(?:אל ת|תמיד|אסור|חובה|השתמש|הקפד|אתה חייב|מעכשיו)|(?:हमेशा|कभी भी|कभी|केवल|आपको).*(?:करें|करो|"
    r"करना|कीजिए|चाहिए|रखें|देना|लिखना|रखना|मत|न )"
)
_ANYWHERE = re.compile(
    r"(?<!ich )\b(?:darf|dürfen|muss|müssen|soll|sollen) (?:\S+ ){0,4}(?:nicht|nie|niemals|nur|immer|stets|"
    r"unbedingt)\b|"
    r"\b(?:darf|dürfen) (?:\S+ ){0,3}kein|\b(?:doit|doivent) (?:toujours|rester|être|pas|jamais)\b|"
    r"\bne (?:doit|doivent|peut|peuvent) (?:pas|jamais|plus)\b|"
    r"\b(?:debe|deben|deve|devem) (?:siempre|sempre|ser|estar|quedar|ficar|permanecer)\b|\bno se (?:debe|"
    r"deben|puede|pueden) |\b(?:deve|devono) (?:sempre|essere|restare)\b|\b(?:mag|mogen|moet|"
    r"moeten) (?:nooit|niet|altijd|alleen)\b|"
    r"\bnon (?:deve|devono|può|possono) (?:mai|essere)\b|\b(?:не )?должн[аоы]?\b|\bнельзя\b|"
    r"\bне повинн\w+\b|मत (?:कर|बदल|छू|हटा)|"
    r"\bnie (?:może|mogą|wolno|powinn\w+)\b|\b(?:måste|får) (?:alltid|inte|aldrig|bara)\b"
)
# One of these stands in every clause that the pattern finds, and looking for them is much quicker.
_ANYWHERE_HINTS = re.compile(
    r"d(?:arf|ürfen|oi|eb|ev)|m(?:uss|üssen|ag|og|oet|åste)|soll|p(?:eut|euv|ued|uò|oss)|долж|нельзя|повин|मत|nie |får"
)
_SPEAKER = re.compile(
    r"(?:ich|wir|je|j[’']|nous|yo|nosotros|eu|nós|io|noi|ik|wij|we|jag|vi|jeg|я|мы|ми|ja|my|ben|biz|tôi|"
    r"saya|aku|kami|أنا|אני|मैं|मुझे|"
    r"me|mi|mir|mich|me lo|он|она|оно|это|они|es|das|er|il|elle|on|ça|cela)\b"
)

# Scripts without spaces between words.
_HAN_SUBJECT = re.compile(
    r"(?:我|我们|我們|他|她|他们|它|这|那|這|俺|私|僕|自分|저는|제가|나는|내가|저희|우리)"
)
_HAN = (
    r"(?<!要)不要(?!紧|緊|了$)|切勿|请勿|請勿|勿(?:修|改|动|删|用)|严禁|嚴禁|禁止(?!访问|訪問|された|されて)|不得(?!不|已)|(?:务|務)必|必(?:须|須)(?!的$)|"
    r"一律|绝(?:不|对不)(?:要|能|可|得)|絕不(?:要|能|可)|千万(?:不|别)|只(?:能|允许|可以|准|許)|不(?:允许|准|許)|不能(?:修改|使用|改|动|删|碰|提交|用|"
    r"更改|超)|"
    r"^别(?:改|动|碰|删|用|忘|再)|^(?:记得|記得|注意(?!到|力))|(?:时候?|時候?)(?:请|要)?注意|之?前(?:都|请|要|必须)?先(?!前|生|后)|(?:请|請)(?:始终|總是|总是|使用|用|保持|确保|確保|只|每次|先|一直)|(?:始终|總是|总是|永远|一直)(?:要|用|使用|保持|先|不要)|"
    r"以后(?:都|请|每|不)|从现在(?:开始|起)|從現在|今后|(?:所有|全部|一切).{0,12}都(?:要|用|必)|每次.{0,12}(?:都要|都请|必须|先|前|后)|^(?:确保|確保|"
    r"保持|避免|尽量|儘量)|^(?:只|仅)(?:修改|使用|改|用|编辑|允许)"
    r"|(?:し|さ|せ|え|か|ら|わ|ば|た|ま|が|な|み|び|ぎ|き|ち|り|れ|け)ないで(?:ください|下さい|ね|くれ|$|。)|ては(?:いけ|なら|だめ|ダメ|駄目)|"
    r"(?:必ず|常に|毎回|今後|以降|絶対に|いつも|原則).{0,40}(?:てください|て下さい|こと|ないで|せよ|ように|て$|ろ$|な$)|"
    r"(?:のみ|だけ).{0,12}(?:てください|て下さい|こと|すること)|(?:する|しない|いる|おく|書く|使う|守る|行う|ない)こと(?:$|。)|避けて(?:ください|下さい)|(?:ない|る)ようにして(?:ください|"
    r"$|。)|"
    r"で(?:答え|回答し|返事し|書い|話し)て(?:ください|下さい|くれ|ほしい)|なければ(?:なら|いけ)|禁止(?:です|する|$|。)"
    r"|지 ?(?:마(?:세요|십시오|라|시오|요)?|말(?:아|것|고|라))|(?:절대|항상|반드시|언제나|꼭|앞으로|매번).{0,40}(?:세요|십시오|시오|해 ?줘|하라|해라|해야|"
    r"할 것|주세요|마|말)|"
    r"만 (?:사용|수정|변경|편집|써).{0,12}(?:세요|십시오|해 ?줘|하라|것|주세요)|(?:해야|어야|아야|면 안) ?(?:합니다|한다|해요|돼요|됩니다|된다|함)|"
    r"금지(?:입니다|$|\.)"
)
_IS_HAN = re.compile(r"[぀-ヿ㐀-鿿가-힯]")
# What a person says to remember, whatever it is; and words by which an instruction says that it is meant for later.
_TO_REMEMBER = re.compile(
    r"(?:please |bitte )?(?:remember(?: that\b|:| my\b)|merke? dir\b|souviens-toi que\b|recuerda que\b|lembre-se (?:de )?que\b|"
    r"ricorda(?:ti)? che\b|запомни(?:те)?\b|(?:请|請)?(?:记住|記住)|覚えておいて)"
)
_LASTING = re.compile(
    r"\b(?:remember|(?:don[’']?t|do not|never) forget|keep in mind|from now on|going forward|henceforth|"
    r"in (?:the )?future|next time|every session|all sessions|"
    r"merke? dir|denk(?:e|t)? (?:daran|dran)|vergiss nicht|ab (?:jetzt|sofort|heute)|von (?:jetzt|nun) an|in zukunft|künftig|"
    r"souviens-toi|rappelle-toi|retiens|n[’']oublie pas|désormais|dorénavant|à l[’']avenir|"
    r"recuerda|no olvides|de ahora en adelante|a partir de ahora|en (?:el )?futuro|"
    r"lembre-se|não se esqueça|de agora em diante|a partir de agora|ricorda(?:ti)?|non dimenticare|d[’']ora in poi|in futuro|"
    r"onthoud|vergeet niet|vanaf nu|voortaan|запомни(?:те)?|не забудь(?:те)?|впредь|отныне|с этого момента)\b|"
    r"记住|記住|别忘|別忘|以后|以後|今后|从现在起|從現在起|覚えて|忘れないで|今後|기억해|잊지|앞으로",
    re.IGNORECASE,
)
_WISH_FOR_AGENT = re.compile(r"我(?:希望|要求|想让|想要|要)你|我們?希望你")


def find_constraints(text: str) -> list[str]:
    """Returns the sentences of a person's text that instruct the agent for more than the task at hand, word for word.

    Of a long text the start and the end are read. Bullets are left out; a very long sentence is none. One that points back
    ("Instead, use …") comes with the sentence before it.
    """
    found: list[str] = []
    is_report = len(_FILE_AND_LINE.findall(text[:_LONG_MESSAGE])) > 1 or _is_pasted(text)
    before = ""
    judged: dict[str, bool] = {}  # logs that people paste say the same again and again
    for sentence in sentences(text):
        bullet = _BULLET.match(sentence)
        bare = sentence[bullet.end() :] if bullet else sentence
        if bare not in judged:
            judged[bare] = len(bare) <= _LONGEST_SENTENCE and is_constraint(bare, in_report=is_report)
        if judged[bare]:
            joined = f"{before} {bare}"
            if before and _POINTS_BACK.match(bare) and len(joined) <= _LONGEST_SENTENCE:
                found = [one for one in found if one != before]
                bare = joined
            found.append(bare)
        before = bare
    return found


def is_constraint(sentence: str, *, in_report: bool = False) -> bool:
    """Returns whether a sentence that a person says to an agent is an instruction that stands.

    In a report that a person pasted, "no global state" and "it reads but never closes" are findings: there the whole
    sentence must be an instruction.
    """
    lower = sentence.lower()
    low = lower.replace("’", "'").strip(_WRAPPING)
    is_ascii = low.isascii()  # most sentences are, and there much need not be looked for
    if is_ascii and len(low) < _SHORTEST_SENTENCE:
        return False
    if (not is_ascii or "?" in low) and _QUESTION.search(low):
        return _ASKS_FOR_GOOD.match(low) is not None
    if _CODE.match(lower) or _LEADS_ON.search(low) or not _TWO_WORDS.search(low):
        return False
    if _TO_REMEMBER.match(low):
        return True
    if not is_ascii and _IS_HAN.search(low):
        return _is_han_constraint(low)
    if in_report:
        return _is_instruction(_strip(low))
    return bool(_BAN.match(low.strip(_WRAPPING + ".!").removeprefix("please "))) or any(
        _is_instruction(clause) for clause in _clauses_of(low)
    )


def _is_pasted(text: str) -> bool:
    """Returns whether most of a person's text is the output of a program: what it says was not said by a person."""
    lines = [line for line in text[:_LONG_MESSAGE].split("\n") if line.strip()]
    return len(lines) >= _LEAST_PASTED and 3 * sum(map(bool, map(_OUTPUT.match, lines))) >= len(lines)


def is_lasting(sentence: str) -> bool:
    """Returns whether an instruction says itself that it is meant for more than the present work."""
    return _LASTING.search(sentence) is not None


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text; of a long one those at its start and its end."""
    pieces = _split_sentences(text if len(text) <= _LONG_MESSAGE else text[: _LONG_MESSAGE // 2 + 1])
    if len(text) > _LONG_MESSAGE:  # what is cut there is no sentence
        rest = _split_sentences(text[-_LONG_MESSAGE // 2 - 1 :])
        pieces = [*(pieces[:-1] or pieces), *(rest[1:] or rest)]
    return [said for piece in pieces if (said := piece.strip())]


def _split_sentences(text: str) -> list[str]:
    """Returns what stands between the ends of sentences; some pieces are empty."""
    split = _SENTENCE_END.split(text)  # a piece, what ends it, the next piece, and so on
    pieces = [
        piece if end == "\n" else piece + end for piece, end in zip(split[::2], split[1::2], strict=False)
    ]
    pieces.append(split[-1])
    return pieces


def without_code(text: str) -> str:
    """Returns the text without its fenced blocks: what stands in code is not what the speaker says."""
    return _FENCED.sub("\n", text) if "```" in text else text


def _clauses_of(sentence: str) -> Iterator[str]:
    """Yields the clauses of a sentence, the whole of it first, without what only leads to them.

    A clause that an "and" or a "but" joins to one with a subject has the same subject, and is no imperative. Nor is a single
    word behind a comma or a colon one.
    """
    yield _strip(sentence)
    pieces = _CLAUSE.split(sentence, _MOST_CLAUSES)
    for before, joint, piece in zip(pieces[::2], pieces[1::2], pieces[2::2], strict=False):
        if piece.isascii() and " " not in piece.strip():
            continue
        if not (joint.strip().isalpha() and _SUBJECT.search(before)):
            yield _strip(piece)


def _strip(clause: str) -> str:
    edges = _WRAPPING + ".!)]}"
    bare = clause.strip(edges)
    opening = _OPENING.match(bare)
    return bare[opening.end() :].strip(edges) if opening else bare


def _is_instruction(clause: str) -> bool:
    if not _HAS_WORD.search(clause):
        return False
    if _compile(_ENGLISH).match(clause):
        return True
    if _ENGLISH_WORDS.search(clause):
        return bool(_OBLIGATION.search(clause)) and not _FIRST_PERSON.match(clause)
    if _SPEAKER.match(clause) and not _compile(_BEGINNINGS).match(clause):
        return False
    if _OBLIGATION.search(clause) and not _FIRST_PERSON.match(clause):
        return True
    if _compile(_BEGINNINGS).match(clause):
        return True
    return _ANYWHERE_HINTS.search(clause) is not None and _ANYWHERE.search(clause) is not None


def _is_han_constraint(sentence: str) -> bool:
    for clause in re.split(r"[,;:，；：。！!、]\s*", sentence):
        bare = clause if clause.startswith(("请", "請")) else _strip(clause)
        if _WISH_FOR_AGENT.match(bare):
            return True
        if bare and not _HAN_SUBJECT.match(bare) and "要不要" not in bare and _compile(_HAN).search(bare):
            return True
    return False
