"""Frequent words of the languages that share a script: what tells a greeting, a weekday or a short question apart.

Written for this program. A word stands in the list of every language that uses it often.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

_WORDS = """
en: the a an of to in is are was were be been it this that these those and or but not no yes with for from on
    at by as you your we our they their he she his her i my me what where when who how why which can could
    will would should do does did have has had there here please thank thanks hello hi hey good morning
    evening afternoon night goodbye bye sorry excuse welcome love friend today tomorrow yesterday now water
    one two three four five six seven eight nine ten monday tuesday wednesday thursday friday saturday sunday
    january february march april may june july august september october november december let us much many
    very help police doctor train station airport toilet
fr: le la les l d un une des du de et ou mais ne n pas non oui avec pour dans sur par en au aux ce c cette ces
    qui que qu quoi où quand comment pourquoi combien je j tu il elle nous vous ils elles mon ma mes ton ta
    votre notre son sa ses est sont suis êtes sommes était être avoir ai avons avez ont fait faire peut s
    plaît merci bonjour bonsoir salut bonne nuit revoir désolé désolée pardon excusez moi bien très ici
    aujourd hui demain hier maintenant eau deux trois quatre cinq six sept huit neuf dix lundi mardi mercredi
    jeudi vendredi samedi dimanche janvier février mars avril mai juin juillet août septembre octobre novembre
    décembre ami amie gare plus aide secours médecin aéroport
es: el la los las un una unos unas de del y o pero no sí si con para por en al a este esta estos ese esa qué
    que quién dónde cuándo cómo cuánto cuánta cuál yo tú él ella nosotros usted ustedes ellos mi tu su es son
    está están soy eres estoy somos ser estar hay tiene tengo tienes puede puedo quiero hola buenos buenas
    días tardes noches adiós gracias favor perdón siento muy bien aquí hoy mañana ayer ahora agua uno dos tres
    cuatro cinco seis siete ocho nueve diez lunes martes miércoles jueves viernes sábado domingo enero febrero
    marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre amigo amiga te me se lo le más
    ayuda auxilio médico estación aeropuerto
pt: o a os as um uma de do da dos das e ou mas não sim com para por em no na nos nas ao à este esta esse essa
    isso que quem onde quando como quanto qual eu tu ele ela nós você vocês eles elas meu minha seu sua é são
    está estão sou estou somos ser estar há tem tenho pode posso quero olá oi bom boa dia tarde noite tchau
    adeus obrigado obrigada favor desculpe muito bem aqui hoje amanhã ontem agora água dois três quatro cinco
    seis sete oito nove dez segunda terça quarta quinta sexta feira sábado domingo janeiro fevereiro março
    abril maio junho julho agosto setembro outubro novembro dezembro amigo amiga mais fica ajuda socorro
    médico estação aeroporto
it: il lo la i gli le l un una uno di del della dei delle e o ma non no sì con per in su da al alla questo
    questa quello che chi dove quando come quanto perché quale io tu lui lei noi voi loro mio mia tuo tua suo
    è sono sei siamo ho hai ha abbiamo essere avere fare può posso voglio ciao buongiorno buonasera buonanotte
    arrivederci grazie prego favore piacere scusi scusa mi ti ci si bene molto qui oggi domani ieri adesso
    acqua due tre quattro cinque sette otto nove dieci lunedì martedì mercoledì giovedì venerdì sabato
    domenica gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre
    amico amica più anche aiuto medico stazione aeroporto
de: der die das den dem des ein eine einen einem einer und oder aber nicht nein ja mit für von zu zum zur im
    in auf an bei aus nach um ist sind war waren bin bist sein haben habe hat hast wird werden kann können ich
    du er sie es wir ihr mein meine dein deine ihre unser was wo wann wer wie warum welche viel bitte danke
    hallo guten gute morgen tag abend nacht tschüss wiedersehen entschuldigung sehr gut hier heute gestern
    jetzt wasser eins zwei drei vier fünf sechs sieben acht neun zehn montag dienstag mittwoch donnerstag
    freitag samstag sonntag januar februar märz april mai juni juli august september oktober november dezember
    freund freundin auch noch kein keine vor bahnhof hilfe arzt polizei flughafen
nl: de het een en of maar niet nee ja met voor van te in op aan bij uit naar om is zijn was waren ben bent
    heeft heb hebben wordt worden kan ik jij je u hij zij ze wij we jullie mijn jouw uw ons onze wat waar
    wanneer wie hoe waarom welke alstublieft alsjeblieft dank bedankt hallo goede goedemorgen goedendag
    goedenavond goedemiddag welterusten dag doei heel goed hier vandaag morgen gisteren nu water twee drie
    vier vijf zes zeven acht negen tien maandag dinsdag woensdag donderdag vrijdag zaterdag zondag vriend ook
    nog geen er dat dit die hulp politie station
tr: ve veya ama değil hayır evet ile için bu şu bir ben sen biz siz onlar benim senin ne nerede zaman kim
    nasıl neden kaç var yok mı mi mu mü lütfen teşekkürler teşekkür ederim merhaba selam günaydın iyi akşamlar
    geceler günler güle hoşça hoşçakal özür dilerim çok burada bugün yarın dün şimdi su iki üç dört beş altı
    yedi sekiz dokuz on pazartesi salı çarşamba perşembe cuma cumartesi pazar arkadaş daha gibi olarak olan
vi: và không có với của là được trong này đó một những các tôi bạn chị ông bà chúng gì đâu khi nào thế xin
    chào cảm ơn tạm biệt lỗi rất đây hôm bây giờ nước hai ba bốn năm sáu bảy tám chín mười thứ nhật người
ms: dan atau tetapi tidak ya dengan untuk dari di ke pada yang ini itu adalah ialah saya awak anda kamu dia
    kita kami mereka apa mana bila siapa bagaimana kenapa mengapa berapa boleh ada akan telah sudah sila
    terima kasih helo hai selamat pagi petang malam tinggal jalan maaf sangat sini hari esok semalam sekarang
    air satu dua tiga empat lima enam tujuh lapan sembilan sepuluh isnin selasa rabu khamis jumaat sabtu ahad
    kerana daripada kepada bahawa iaitu polis kereta wang lebih beliau tersebut
id: dan atau tetapi tapi tidak ya dengan untuk dari di ke pada yang ini itu adalah saya aku kamu anda dia kita
    kami mereka apa mana kapan siapa bagaimana kenapa mengapa berapa bisa ada akan telah sudah silakan tolong
    terima kasih halo hai selamat pagi siang sore malam tinggal jalan maaf sangat sini hari besok kemarin
    sekarang air satu dua tiga empat lima enam tujuh delapan sembilan sepuluh senin selasa rabu kamis jumat
    sabtu minggu karena bahwa yaitu polisi mobil uang lebih kepada tersebut
tl: ang ng mga sa na at o ngunit pero hindi oo opo po may mayroon wala ako ikaw ka siya kami tayo kayo sila ko
    mo niya namin natin ninyo nila ito iyan iyon ano saan kailan sino paano bakit magkano alin salamat kumusta
    magandang umaga hapon gabi paalam pasensya paumanhin pakiusap dito ngayon bukas kahapon tubig isa dalawa
    tatlo apat lima anim pito walo siyam sampu lunes martes miyerkules huwebes biyernes sabado linggo kaibigan
    ay si ni kay para din rin lang
pl: i lub ale nie tak z ze dla od do w we na przez po to jest są był była być mam masz ma mamy może ja ty on
    ona my wy oni mój moja twój co gdzie kiedy kto jak dlaczego ile który proszę dziękuję dzięki cześć dzień
    dobry wieczór dobranoc widzenia przepraszam bardzo dobrze tutaj dzisiaj dziś jutro wczoraj teraz woda
    jeden dwa trzy cztery pięć sześć siedem osiem dziewięć dziesięć poniedziałek wtorek środa czwartek piątek
    sobota niedziela przyjaciel się już tylko
cs: a nebo ale ne ano s se pro od do v ve na přes po to je jsou byl byla být mám máš má máme může já ty on ona
    my vy oni můj moje tvůj co kde kdy kdo jak proč kolik který prosím děkuji díky ahoj dobrý den dobré ráno
    večer dobrou noc nashledanou promiňte velmi dobře tady dnes zítra včera teď voda jeden dva tři čtyři pět
    šest sedm osm devět deset pondělí úterý středa čtvrtek pátek sobota neděle přítel jsem jste že už tak
ru: и в не на я что он с как это по но вы ты мы она они да нет привет здравствуйте спасибо пожалуйста доброе
    утро добрый день вечер до свидания где когда кто почему сколько очень хорошо сегодня завтра вчера вода
    один два три четыре пять шесть семь восемь девять десять понедельник вторник среда четверг пятница суббота
    воскресенье
uk: і та в не на я що він з як це по але ви ти ми вона вони так ні привіт вітаю дякую будь ласка доброго ранку
    добрий день вечір до побачення де коли хто чому скільки дуже добре сьогодні завтра вчора вода один два три
    чотири шість сім вісім десять понеділок вівторок середа четвер субота неділя
kk: және мен бұл бір де да сен ол біз сіз олар жоқ иә сәлем рахмет қайырлы таң кеш күн қайда қашан кім неге
    қанша өте жақсы бүгін ертең кеше су екі үш төрт бес алты жеті сегіз тоғыз он дүйсенбі сейсенбі сәрсенбі
    бейсенбі жұма сенбі жексенбі
mn: ба нь би чи бид та тэд энэ тэр юу хаана хэзээ хэн яагаад хэд үгүй тийм сайн байна уу баярлалаа өглөөний
    мэнд баяртай уучлаарай маш өнөөдөр маргааш өчигдөр ус нэг хоёр гурав дөрөв тав зургаа долоо найм ес арав
    даваа мягмар лхагва пүрэв баасан бямба ням өдөр
ar: في من على إلى هذا هذه ما لا نعم أنا أنت هو هي نحن مرحبا شكرا صباح الخير مساء السلام عليكم أين متى كيف
    لماذا كم جدا اليوم غدا أمس ماء مع عن التي الذي أن
fa: در از به با این آن که را است هستم نیست بله نه من تو او ما شما سلام متشکرم ممنون صبح بخیر شب خداحافظ کجا چه
    چطور چرا چند خیلی امروز فردا دیروز آب یک و می برای
ur: میں سے کا کی کے ہے ہیں اور یہ وہ نہیں ہاں آپ ہم تم شکریہ صبح بخیر خدا حافظ کہاں کب کیا کیسے کیوں کتنا بہت
    آج کل پانی ایک کو نے پر
ug: ۋە بىلەن بۇ ئۇ مەن سەن سىز بىز ھەئە ياق رەھمەت ياخشىمۇسىز خەير خوش قەيەردە قاچان كىم نېمە قانچە بۈگۈن ئەتە
    سۇ بىر ئىككى ئۈچ سالام
hi: है हैं का की के में और को से नहीं यह वह हाँ मैं आप हम तुम क्या कहाँ कब कौन कैसे क्यों कितना बहुत आज
    धन्यवाद शुभ एक पर ने था थी हो
mr: आहे आहेत आणि नाही हे ते ती मी तू आम्ही तुम्ही काय कुठे कधी कोण कसे का किती खूप आज उद्या काल नमस्कार
    तुमच्या तुमची तुझे आपण आपल्या त्या त्यांनी यांनी साठी मध्ये असे असून झाले झाली केली होती म्हणाले होय या व
    एक होते होता केले
"""


# Common words that only one of two sister languages has, or spells so.
_SISTERS = """
ms: bahawa kerana iaitu wang tarikh kerajaan syarikat pelbagai manakala sahaja ialah bandar jenama perniagaan
    peratus ahli parti lelaki pejabat mesyuarat kakitangan dekad jiran ditubuhkan perbualan bercakap mahkamah
    perkahwinan mahupun polis kereta awak lapan petang semalam khamis jumaat ahad isnin undi peguam cuti
    hospital penyiasatan siasatan bimbang dianggarkan tandas kedai
id: bahwa karena yaitu uang kapan bisa pemerintah perusahaan berbagai perkawinan pengadilan hukum pria serikat
    kelompok persen anggota partai laki kantor mobil kota apapun maupun perburuhan khawatir diperkirakan merek
    bisnis warga percakapan delapan kemarin besok sore siang silakan senin kamis jumat minggu polisi pengacara
    kulkas toko koran listrik
"""


def frequent_words() -> Mapping[str, frozenset[str]]:
    """Return lower-case words in NFC by language tag."""
    return _parsed(_WORDS)


@cache
def sister_words() -> Mapping[str, frozenset[str]]:
    """Return, for Malay and Indonesian, words that the other one does not have."""
    return _parsed(_SISTERS)


def _parsed(lists: str) -> Mapping[str, frozenset[str]]:
    words: dict[str, set[str]] = {}
    tag = ""
    for token in lists.split():
        if token.endswith(":"):
            tag = token[:-1]
        else:
            words.setdefault(tag, set()).add(token)
    return {tag: frozenset(found) for tag, found in words.items()}
