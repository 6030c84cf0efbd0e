"""Common English words for the text generator, the most frequent first in each list."""

from __future__ import annotations

DETERMINERS = "the a this that each our their some every its another any the your no".split()

PREPOSITIONS = (
    "of in to for with on at from by about into over after between through during "
    "before under without against within across toward beyond near"
).split()

LINKS = "and but so because while if when or although until since unless then yet".split()

SUBJECTS = "it we they you I he she there this nobody everyone someone".split()

AUXILIARIES = ("is was can will would has should had may must could does did might cannot").split()

ADVERBS = (
    "not also only still now then more already often just again never always almost even "
    "usually quickly perhaps mostly rather quite finally soon later once together instead "
    "carefully slowly clearly directly simply nearly exactly early barely twice safely"
).split()

NOUNS = (
    "time way day thing year part place work case week point company number group problem "
    "fact agent state step message answer question result page list table record change "
    "history version branch store value name key file test error plan task tool user order "
    "report cost price note paper city road house room door water light hand eye head side "
    "school student teacher study book word line story idea reason example kind form level "
    "member family friend child parent person team office market shop product service "
    "customer account payment bank budget rate amount total share project manager meeting "
    "call phone letter mail address street station train ticket hotel table restaurant "
    "kitchen meal coffee bread garden tree river lake mountain island coast field farm "
    "animal bird horse fish weather rain snow wind summer winter morning evening night hour "
    "minute second month season century event party game player match goal score song music "
    "film picture colour shape size weight length height distance speed power energy heat "
    "machine engine computer screen window button network server database query index cache "
    "memory disk thread process function argument object method class module library package "
    "release design draft review comment feature bug failure crash warning log trace metric "
    "limit budget quota token prompt model source document chapter section paragraph sentence "
    "title summary quote reference link image chart map route guide manual rule law court "
    "judge case contract policy right duty claim proof evidence doctor nurse hospital patient "
    "disease drug health body heart blood skin brain mind thought memory feeling hope fear "
    "voice sound noise silence language culture art museum church government president "
    "minister election vote party tax border country nation state army war peace history "
    "research science theory method sample experiment measure figure average difference "
    "increase growth loss risk chance choice decision effort practice skill training lesson "
    "job career worker union wage strike factory tool material metal glass wood stone paper "
    "plastic oil gas coal fuel car truck ship plane bridge tunnel airport harbour neighbour "
    "guest host owner buyer seller agency board committee department institute university "
    "college degree course grade exam answer deadline schedule calendar agenda minute folder "
    "archive backup copy pattern structure system network layer surface edge corner centre "
    "middle bottom top front back start end beginning"
).split()

VERBS = (
    "use need ask work call try show want look seem start turn help talk play move live "
    "happen include continue change follow stop create open close allow add offer remember "
    "consider appear wait serve expect stay reach remain suggest raise pass report require "
    "decide return explain develop carry receive agree support check point produce cover "
    "listen watch answer join reduce place apply visit count compare record measure store "
    "load save merge commit restore repair retry fetch parse render deploy test review plan "
    "order book cancel confirm deliver collect prepare cook clean wash finish learn train "
    "study mark print copy share send search match sort filter update remove replace rename "
    "select reject accept request respond mention describe discuss argue prove claim deny "
    "admit promise warn protect attack escape travel arrive depart cross climb jump walk "
    "push pull lift drop press touch reply paint fix design improve extend limit divide "
    "combine connect attach release"
).split()

ADJECTIVES = (
    "new other good first last long great little own old right big high different small "
    "large next early young important few public bad same able whole late hard major better "
    "clear recent certain open red difficult available likely short single common poor "
    "natural similar final main green nice huge popular cultural simple quiet local quick "
    "slow cheap expensive heavy light dark bright cold warm hot dry wet deep wide narrow "
    "strong weak safe dangerous healthy fresh sweet rich empty full round flat sharp smooth "
    "rough strange familiar modern ancient central remote internal external active passive "
    "careful useful useless stable broken missing correct wrong complete partial exact rough "
    "daily weekly annual formal casual honest polite busy free ready proud calm patient "
    "careless curious serious gentle brave loyal separate mutual mobile digital technical "
    "legal medical social economic political military scientific regular typical rare"
).split()

NAMES = (
    "Anna Peter Maria David Elena Thomas Julia Martin Sofia Daniel Laura Simon Clara Victor "
    "Nina Oscar Paula Hugo Irene Felix Berlin Lisbon Vienna Oslo Prague Madrid Dublin Zurich"
).split()
